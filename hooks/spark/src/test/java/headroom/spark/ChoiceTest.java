// Claims: of n partitions ceil(n(1 - theta)) are kept and never none; one seed gives one set, on every Java; every
// partition is as likely as any other; stages that read the same input choose alike, others do not.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ChoiceTest {
  @ParameterizedTest
  @CsvSource({
    "50,0,50", "50,0.1,45", "50,0.2,40", "50,0.4,30", "50,0.9,5", "10,0.05,10", "10,0.1,9", "3,0.4,2", "6,0.2,5",
    "50,1,1", "1,0.9,1", "1,1,1", "0,0.5,0", "0,1,0", "1000000,0.999999,1"
  })
  void soManyAreKept(int n, double theta, int k) {
    assertEquals(k, Choice.count(n, theta));
  }

  @Test
  void theSetIsTheSameEverywhere() {
    assertEquals("{0, 2, 3, 6, 7, 9, 10, 11, 12, 13, 18, 19}", Choice.choose(20, 12, 42, Choice.salt(true, 20, 7)).toString());
  }

  @Test
  void soManyAreChosenAndNoOthers() {
    for (int n = 0; n < 40; n++) {
      for (int k = 0; k <= n; k++) {
        BitSet kept = Choice.choose(n, k, 5, n);
        assertEquals(k, kept.cardinality());
        assertTrue(kept.length() <= n);
      }
    }
  }

  /** 20000 choices of 3 of 10: 6000 of each, and 1333 of each pair; six standard deviations are 65 and 211. */
  @Test
  void allAreEquallyLikely() {
    int[] single = new int[10];
    int[][] pair = new int[10][10];
    for (int seed = 0; seed < 20_000; seed++) {
      int[] kept = Choice.choose(10, 3, seed, -11).stream().toArray();
      for (int a : kept) {
        single[a]++;
        for (int b : kept) {
          pair[a][b]++;
        }
      }
    }
    for (int a = 0; a < 10; a++) {
      assertEquals(6000, single[a], 6 * 65);
      for (int b = 0; b < a; b++) {
        assertEquals(1333, pair[a][b], 211);
      }
    }
  }

  @Test
  void inputStagesOfOneSizeChooseAlike() {
    assertEquals(Choice.salt(true, 50, 1), Choice.salt(true, 50, 2));
    assertNotEquals(Choice.salt(true, 50, 1), Choice.salt(true, 51, 1));
    assertNotEquals(Choice.choose(50, 25, 1, Choice.salt(false, 50, 1)), Choice.choose(50, 25, 1, Choice.salt(false, 50, 2)));
    assertNotEquals(Choice.choose(50, 25, 1, Choice.salt(false, 50, 1)), Choice.choose(50, 25, 2, Choice.salt(false, 50, 1)));
  }
}
