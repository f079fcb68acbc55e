// Claims: a partition's rows follow from its number, so that every pass and every attempt has the same; other partitions have others.
package headroom.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.mllib.regression.LabeledPoint;
import org.junit.jupiter.api.Test;

class ScaleTest {
  private static List<LabeledPoint> points(int number) {
    List<LabeledPoint> all = new ArrayList<>();
    Scale.points(number, 20, 3).forEachRemaining(all::add);
    return all;
  }

  @Test
  void rowsFollowFromTheNumber() {
    assertEquals(20, points(1).size());
    assertEquals(points(1), points(1));
    assertNotEquals(points(1), points(2));
  }
}
