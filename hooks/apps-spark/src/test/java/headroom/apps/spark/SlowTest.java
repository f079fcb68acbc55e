// Claims: each attempt of each partition has the number that stands for it, in a circle; without numbers none is slow.
package headroom.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SlowTest {
  @ParameterizedTest
  @CsvSource(delimiter = '|', value = {"''|3|0|1", "1,3.5;2,4|0|0|1", "1,3.5;2,4|1|0|3.5", "1,3.5;2,4|1|1|4", "1,3.5;2,4|2|2|1"})
  void times(String list, int task, int attempt, double want) {
    assertEquals(want, Slow.times(list, task, attempt));
  }
}
