// Claims: over all partitions the numbers are exact; intervals hold the truth as often as they say; triangles in random
// order are scaled without bias; what one sample cannot tell is unknown, never zero; nonsense is refused.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ScalingTest {
  private static final int PARTITIONS = 50;

  @Test
  void nothingDroppedIsExact() {
    assertEquals("30.0 [30.0, 30.0]", Scaling.sum(30, 500, 4, 4, 0.95).toString());
    assertEquals("30.0 [30.0, 30.0]", Scaling.count(30, 500, 1, 1, 0.95).toString());
    assertEquals("1.5 [1.5, 1.5]", Scaling.mean(30, 20, 500, 200, 300, 4, 4, 0.95).toString());
    assertEquals("30.0 [30.0, 30.0]", Scaling.triangles(30, 4, 4).toString());
    assertEquals("30.0 [30.0, 30.0]", Scaling.product(30, Collections.emptyList()).toString());
    assertEquals("30.0 [30.0, 30.0]", Scaling.atLeast(30, 4, 4).toString());
    assertEquals("30.0 [30.0, 30.0]", Scaling.atMost(30, 4, 4).toString());
  }

  /** Parts 4, 6 and 8 of three of six partitions: s^2 = 4, half width 6 * t(2, .975) * sqrt(.5 * 4 / 3). */
  @Test
  void theIntervalIsStudents() {
    Estimate e = Scaling.sum(18, 16 + 36 + 64, 3, 6, 0.95);
    assertEquals(36, e.value(), 1e-12);
    assertEquals(36 - 21.0789, e.low(), 1e-3);
    assertEquals(36 + 21.0789, e.high(), 1e-3);
  }

  @Test
  void aCountIsNeverBelowWhatWasSeen() {
    assertEquals(18, Scaling.count(18, 16 + 36 + 64, 3, 6, 0.999).low(), 0);
    assertTrue(Scaling.sum(18, 16 + 36 + 64, 3, 6, 0.999).low() < 0);
  }

  @ParameterizedTest
  @ValueSource(doubles = {0.1, 0.4, 0.8})
  void intervalsHoldTheTruthAsOftenAsTheySay(double theta) {
    Random random = new Random(11);
    double[] y = new double[PARTITIONS];
    double[] x = new double[PARTITIONS];
    for (int i = 0; i < PARTITIONS; i++) {
      x[i] = 80 + random.nextInt(40);
      y[i] = x[i] * (2 + 0.3 * random.nextGaussian());
    }
    double sum = Arrays.stream(y).sum();
    double mean = sum / Arrays.stream(x).sum();
    int k = Choice.count(PARTITIONS, theta);
    int sums = 0;
    int means = 0;
    int rounds = 2000;
    for (int seed = 0; seed < rounds; seed++) {
      double[] s = sums(y, x, Choice.choose(PARTITIONS, k, seed, 0));
      sums += within(Scaling.count(s[0], s[2], k, PARTITIONS, 0.95), sum);
      means += within(Scaling.mean(s[0], s[1], s[2], s[3], s[4], k, PARTITIONS, 0.95), mean);
    }
    // The ratio estimator's are approximate, a little narrow for few partitions.
    assertEquals(0.95, (double) sums / rounds, 0.02);
    assertEquals(0.95, (double) means / rounds, 0.03);
  }

  /** y, x, yy, xx and xy over the kept partitions. */
  private static double[] sums(double[] y, double[] x, BitSet kept) {
    double[] s = new double[5];
    kept.stream().forEach(i -> {
      s[0] += y[i];
      s[1] += x[i];
      s[2] += y[i] * y[i];
      s[3] += x[i] * x[i];
      s[4] += x[i] * y[i];
    });
    return s;
  }

  private static int within(Estimate e, double truth) {
    return e.low() <= truth && truth <= e.high() ? 1 : 0;
  }

  /** Three edges at random in 8 partitions of which 5 are kept: all three are there with probability (5/8)^3. */
  @Test
  void trianglesInRandomOrderAreScaledWithoutBias() {
    BitSet kept = Choice.choose(8, 5, 3, 0);
    int found = 0;
    for (int a = 0; a < 8; a++) {
      for (int b = 0; b < 8; b++) {
        for (int c = 0; c < 8; c++) {
          found += kept.get(a) && kept.get(b) && kept.get(c) ? 1 : 0;
        }
      }
    }
    assertEquals(8 * 8 * 8, Scaling.triangles(found, 5, 8).value(), 1e-9);
  }

  @Test
  void severalStagesMultiply() {
    Kept a = new Kept(0, 50, 40, 0.2, 1, true, "");
    Kept b = new Kept(1, 10, 8, 0.2, 1, false, "");
    assertEquals(100 * 1.25 * 1.25, Scaling.product(100, Arrays.asList(a, b)).value(), 1e-9);
    assertFalse(Scaling.product(100, Arrays.asList(a, b)).bounded());
  }

  @Test
  void whatOneSampleDoesNotTellIsUnknown() {
    assertEquals("20.0 [?, ?]", Scaling.sum(10, 100, 1, 2, 0.95).toString());
    assertEquals("2.0 1.0 8.0", Scaling.sum(10, 100, 1, 2, 0.95).scale() + " " + Scaling.atLeast(10, 1, 2).scale() + " "
        + Scaling.triangles(10, 1, 2).scale(), "what the sample's value was multiplied by");
    assertEquals("20.0 [10.0, ?]", Scaling.count(10, 100, 1, 2, 0.95).toString());
    assertEquals("2.0 [?, ?]", Scaling.mean(10, 5, 100, 25, 50, 1, 2, 0.95).toString());
    assertEquals("80.0 [?, ?]", Scaling.triangles(10, 1, 2).toString());
    assertEquals("7.0 [7.0, ?]", Scaling.atLeast(7, 1, 2).toString());
    assertEquals("7.0 [?, 7.0]", Scaling.atMost(7, 1, 2).toString());
  }

  @Test
  void nonsenseIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> Scaling.sum(1, 1, 0, 5, 0.95));
    assertThrows(IllegalArgumentException.class, () -> Scaling.sum(1, 1, 6, 5, 0.95));
    assertThrows(IllegalArgumentException.class, () -> Scaling.sum(1, 1, 3, 5, 1));
    assertThrows(IllegalArgumentException.class, () -> Scaling.sum(1, 1, 3, 5, Double.NaN));
    assertThrows(IllegalArgumentException.class, () -> Scaling.triangles(1, 0, 0));
  }
}
