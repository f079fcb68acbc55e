// Claims: a movie's bin is the mean of its ratings to the nearest half star; what is no rating does not count.
package headroom.apps;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RatingsTest {
  @ParameterizedTest
  @CsvSource(delimiter = '|', value = {
    "1:10_3|3", "1:10_3,11_4|3.5", "1:10_1,11_1,12_2|1.5", "1:10_5,11_5,12_5,13_4|5", "1:10_4,11_4,12_4,13_5|4.5",
    "7: 10_2 , 11_2|2", "7:10_2,,11_x,12,13_9,14_0,15_22,_|2"
  })
  void theMeanToTheNearestHalf(String line, double bin) {
    assertEquals(bin, Ratings.bin(line));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", ":10_3", "1", "1:", "1:10", "1:10_6", "no movie"})
  void noRatingNoBin(String line) {
    assertEquals(Double.NaN, Ratings.bin(line));
  }

  @Test
  void aUserMayHaveAnUnderscore() {
    assertEquals(4, Ratings.bin("1:a_b_4"));
  }
}
