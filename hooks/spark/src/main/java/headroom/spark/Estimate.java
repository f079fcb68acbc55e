package headroom.spark;

import java.io.Serializable;

/** What the exact result is taken to be, and between which bounds where the estimator tells them. */
public final class Estimate implements Serializable {
  private static final long serialVersionUID = 1;

  private final double value;
  private final double low;
  private final double high;
  private final double scale;

  Estimate(double value, double low, double high, double scale) {
    this.value = value;
    this.low = low;
    this.high = high;
    this.scale = scale;
  }

  /** Without bounds: they are unknown, not zero. */
  static Estimate point(double value, double scale) {
    return new Estimate(value, Double.NaN, Double.NaN, scale);
  }

  /** What the value of the sample was multiplied by, 1 for an exact one. */
  public double scale() {
    return scale;
  }

  /** The most likely value. */
  public double value() {
    return value;
  }

  /** The lower bound, NaN where it is unknown. */
  public double low() {
    return low;
  }

  /** The upper bound, NaN where it is unknown. */
  public double high() {
    return high;
  }

  /** Whether there are both bounds. */
  public boolean bounded() {
    return !Double.isNaN(low) && !Double.isNaN(high);
  }

  @Override
  public String toString() {
    return value + " [" + (Double.isNaN(low) ? "?" : low) + ", " + (Double.isNaN(high) ? "?" : high) + "]";
  }
}
