// Claims: the most frequent words are kept, whatever the order in which they come.
package headroom.apps;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

class RankingTest {
  private static String ranked(int size, String... words) {
    Ranking r = new Ranking(size);
    for (String w : words) {
      r.add(w.substring(0, 1), Long.parseLong(w.substring(1)));
    }
    return r.entries().stream().map(e -> e.word + e.count).collect(Collectors.joining(" "));
  }

  @Test
  void theMostFrequentFirst() {
    assertEquals("c9 a5", ranked(2, "a5", "b1", "c9", "d4"));
    assertEquals("c9 a5", ranked(2, "d4", "c9", "b1", "a5"));
    assertEquals("a1", ranked(3, "a1"));
  }

  @Test
  void equalCountsGoByName() {
    assertEquals("a3 b3", ranked(2, "c3", "b3", "a3"));
    assertEquals("a3 b3", ranked(2, "a3", "b3", "c3"));
  }

  @Test
  void aRankingOfNothingIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> new Ranking(0));
  }
}
