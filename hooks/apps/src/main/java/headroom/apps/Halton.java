package headroom.apps;

/** Points of the Halton sequence in bases 2 and 3, which cover the unit square evenly. */
final class Halton {
  private Halton() {}

  /** How many of the points from first (at least 1) on lie within the circle of diameter 1. */
  static long inside(long first, long count) {
    long inside = 0;
    for (long i = first; i < first + count; i++) {
      double x = inverse(i, 2) - 0.5;
      double y = inverse(i, 3) - 0.5;
      if (x * x + y * y <= 0.25) {
        inside++;
      }
    }
    return inside;
  }

  /** The radical inverse: the digits of n in this base, mirrored at the point. */
  static double inverse(long n, int base) {
    double result = 0;
    double digit = 1.0 / base;
    for (long rest = n; rest > 0; rest /= base) {
      result += digit * (rest % base);
      digit /= base;
    }
    return result;
  }
}
