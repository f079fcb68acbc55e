package headroom.spark;

import java.util.Collection;
import org.apache.commons.math3.distribution.TDistribution;

/**
 * From what some of the input's partitions gave to what all of them would have given.
 *
 * <p>Kept partitions are a random sample of clusters without replacement, so sums and means over them have known errors
 * (Cochran, Sampling Techniques, 3rd ed., sections 2.5, 2.8 and 9.3): {@link #sum}, {@link #count} and {@link #mean} give Student's
 * intervals with the correction for a finite population. They need, beside the sum over partitions, the sum of the
 * squares of each partition's own part: an aggregation that a job carries along (see WordPopularity of the example
 * applications). The intervals hold where a single partition does not dominate, and hold better the more are kept; each
 * is one interval for one number, not for a whole table at once.
 *
 * <p>For the rest one sample does not tell its error: {@link #product} and {@link #triangles} give the value alone, and
 * {@link #atLeast} and {@link #atMost} one bound. A number of distinct keys, a median or a quantile cannot be scaled at all.
 */
public final class Scaling {
  private Scaling() {}

  /**
   * A sum over all partitions.
   *
   * @param sum over the kept partitions
   * @param squares sum over the kept partitions of the square of each one's part
   * @param kept how many were kept
   * @param total of how many
   * @param confidence of the interval, between 0 and 1
   * @return the sum over all; without bounds where fewer than two partitions of several were kept
   */
  public static Estimate sum(double sum, double squares, int kept, int total, double confidence) {
    check(kept, total, confidence);
    double scale = (double) total / kept;
    double value = sum * total / kept;
    if (kept == total) {
      return new Estimate(value, value, value, 1);
    }
    if (kept < 2) {
      return Estimate.point(value, scale);
    }
    double variance = Math.max(0, squares - sum * sum / kept) / (kept - 1);
    double half = total * student(kept, confidence) * error(variance, kept, total);
    return new Estimate(value, value - half, value + half, scale);
  }

  /**
   * A count, or a sum of what is never negative: as {@link #sum}, and never less than what was seen.
   *
   * @param sum over the kept partitions
   * @param squares sum over the kept partitions of the square of each one's part
   * @param kept how many were kept
   * @param total of how many
   * @param confidence of the interval, between 0 and 1
   * @return the count over all
   */
  public static Estimate count(double sum, double squares, int kept, int total, double confidence) {
    Estimate e = sum(sum, squares, kept, total, confidence);
    return e.bounded() ? new Estimate(e.value(), Math.max(sum, e.low()), e.high(), e.scale())
        : new Estimate(e.value(), sum, Double.NaN, e.scale());
  }

  /**
   * A mean of records, or any ratio of two sums. Partitions differ in how many records they have, so this is the ratio
   * estimator: its bias is of the order of 1 / kept, its interval approximate.
   *
   * @param y sum of the values over the kept partitions
   * @param x number of the records over the kept partitions
   * @param yy sum over the kept partitions of the square of each one's values' sum
   * @param xx sum over the kept partitions of the square of each one's number of records
   * @param xy sum over the kept partitions of the product of the two
   * @param kept how many were kept
   * @param total of how many
   * @param confidence of the interval, between 0 and 1
   * @return y / x over all; without bounds where fewer than two partitions of several were kept
   */
  public static Estimate mean(double y, double x, double yy, double xx, double xy, int kept, int total, double confidence) {
    check(kept, total, confidence);
    double value = y / x;
    if (kept == total) {
      return new Estimate(value, value, value, 1);
    }
    if (kept < 2 || x == 0) {
      return Estimate.point(value, 1);
    }
    double variance = Math.max(0, yy - 2 * value * xy + value * value * xx) / (kept - 1);
    double half = student(kept, confidence) * error(variance, kept, total) / (Math.abs(x) / kept);
    return new Estimate(value, value - half, value + half, 1);
  }

  /**
   * A count or sum behind several thinned stages (spark.headroom.stages=all): the product of total / kept, unbiased
   * where the drops of one stage have nothing to do with those of another. The value alone. A stage behind a keyed
   * shuffle drops whole keys: sums over all keys can be scaled so, the value of a single key cannot.
   *
   * @param value behind the stages
   * @param shuffles those on the way to it
   * @return the value without drops
   */
  public static Estimate product(double value, Collection<Kept> shuffles) {
    double factor = Headroom.factor(shuffles);
    return factor == 1 ? new Estimate(value, value, value, 1) : Estimate.point(value * factor, factor);
  }

  /**
   * Triangles of a graph of whose edges' partitions some were kept: (total / kept)^3, which is unbiased where edges are
   * in random order in the input, as each of the three is then kept on its own. Where neighbours share partitions it is
   * too high, and the value is all there is: one sample does not tell its error.
   *
   * @param triangles that were found
   * @param kept partitions
   * @param total of how many
   * @return the triangles of the whole graph
   */
  public static Estimate triangles(double triangles, int kept, int total) {
    check(kept, total, 0.5);
    double factor = (double) total / kept;
    return kept == total ? new Estimate(triangles, triangles, triangles, 1)
        : Estimate.point(triangles * factor * factor * factor, factor * factor * factor);
  }

  /**
   * A maximum, or a number of distinct keys: what was not seen can only add.
   *
   * @param value over the kept partitions
   * @param kept partitions
   * @param total of how many
   * @return the value as a lower bound
   */
  public static Estimate atLeast(double value, int kept, int total) {
    check(kept, total, 0.5);
    return new Estimate(value, value, kept == total ? value : Double.NaN, 1);
  }

  /**
   * A minimum: what was not seen can only lower it.
   *
   * @param value over the kept partitions
   * @param kept partitions
   * @param total of how many
   * @return the value as an upper bound
   */
  public static Estimate atMost(double value, int kept, int total) {
    check(kept, total, 0.5);
    return new Estimate(value, kept == total ? value : Double.NaN, value, 1);
  }

  /** Of the mean over partitions, with the finite population correction. */
  private static double error(double variance, int kept, int total) {
    return Math.sqrt((1 - (double) kept / total) * variance / kept);
  }

  private static double student(int kept, double confidence) {
    return new TDistribution(null, kept - 1).inverseCumulativeProbability((1 + confidence) / 2);
  }

  private static void check(int kept, int total, double confidence) {
    if (kept < 1 || kept > total) {
      throw new IllegalArgumentException(kept + " of " + total + " partitions: at least 1 and at most all are kept");
    }
    if (!(confidence > 0 && confidence < 1)) {
      throw new IllegalArgumentException("a confidence of " + confidence + ": it is between 0 and 1");
    }
  }
}
