package headroom.apps.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import headroom.spark.Headroom;
import headroom.spark.Kept;
import java.util.List;
import org.apache.spark.rdd.RDD;

/** How much of the input a result was made from. */
final class Sample {
  final int kept;
  final int total;
  final double theta;

  /** Every shuffle on the way. */
  final List<Kept> shuffles;

  private Sample(int kept, int total, double theta, List<Kept> shuffles) {
    this.kept = kept;
    this.total = total;
    this.theta = theta;
    this.shuffles = shuffles;
  }

  /**
   * Of what an RDD was made by. Stages that read the same input keep the same partitions, so one of them tells for all;
   * without a shuffle manager that drops all of the partitions were kept.
   */
  static Sample of(RDD<?> rdd, int partitions) {
    List<Kept> shuffles = Headroom.kept(rdd);
    for (Kept k : shuffles) {
      if (k.input() && k.kept() < k.total()) {
        return new Sample(k.kept(), k.total(), k.theta(), shuffles);
      }
    }
    return new Sample(partitions, partitions, 0, shuffles);
  }

  void into(ObjectNode o) {
    o.put("theta", theta).put("kept", kept).put("total", total);
    for (Kept k : shuffles) {
      o.withArray("shuffles").addObject().put("id", k.shuffle()).put("kept", k.kept()).put("total", k.total()).put("input", k.input());
    }
  }
}
