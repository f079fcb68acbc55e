package headroom.spark;

/** A drop ratio, 0 to 1, and the seed of the choices made with it. */
final class DropRatio {
  static final DropRatio EXACT = new DropRatio(0, 1);

  final double theta;
  final long seed;

  DropRatio(double theta, long seed) {
    this.theta = theta;
    this.seed = seed;
  }

  static double checked(double theta) {
    if (!(theta >= 0 && theta <= 1)) { // NaN too
      throw new IllegalArgumentException("a drop ratio must be from 0 to 1");
    }
    return theta;
  }
}
