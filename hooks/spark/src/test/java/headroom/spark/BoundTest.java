// Claims: an error bound holds from the start, a deadline from nine tenths of it on; the greatest of what error and
// min-tasks ask is the floor; without a floor below all of the tasks nothing is left out; texts without a unit, negative
// ones, parts above 1 and an error of 1 are refused.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class BoundTest {
  @ParameterizedTest
  @CsvSource({
      // deadline, error, least, elapsed: what may be left out
      "0,0.05,1,0,0.05", "0,0.05,0.5,0,0.05", "0,0.05,0.99,0,0.01", "10000,0.05,1,0,0.05",
      "10000,0,0.7,8999,0", "10000,0,0.7,9000,0.3", "10000,0,1,20000,0", "0,0,0.5,20000,0"
  })
  void whatMayBeLeftOut(long deadlineMs, double error, double minTasks, long elapsedMs, double end) {
    Bound b = new Bound(deadlineMs, error, minTasks);
    assertEquals(end, b.end(elapsedMs), 1e-12);
    assertEquals(end > 0 || deadlineMs == 10000 && minTasks < 1, b.set());
  }

  @Test
  void noneIsNone() {
    assertFalse(Bound.NONE.set());
    assertEquals(0, Bound.NONE.end(Long.MAX_VALUE));
  }

  @ParameterizedTest
  @CsvSource({"10m,600000", "1h30m,5400000", "250ms,250", "1.5s,1500", "1m0.5s,60500"})
  void durations(String text, long ms) {
    assertEquals(ms, Bound.durationMs(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"10", "-5s", "5 s", "s", "0s", "ten minutes", "5mm", "1e3s"})
  void wrongDurations(String text) {
    assertThrows(IllegalArgumentException.class, () -> Bound.durationMs(text));
  }

  @ParameterizedTest
  @ValueSource(strings = {"1", "100%", "101%", "-1%", "NaN", "x", "%", "1.1"})
  void wrongErrors(String text) {
    assertThrows(IllegalArgumentException.class, () -> Bound.error(text));
  }

  @Test
  void parts() {
    assertTrue(Bound.part("5%") == 0.05 && Bound.part("0.05") == 0.05 && Bound.part("100%") == 1);
  }
}
