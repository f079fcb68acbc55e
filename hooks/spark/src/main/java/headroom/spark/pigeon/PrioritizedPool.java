package headroom.spark.pigeon;

import java.util.function.Predicate;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.TaskSetManager;
import scala.Enumeration;
import scala.collection.mutable.ArrayBuffer;

/** Spark's pool of the task sets, which can show those of one priority only. Used under the scheduler's lock. */
final class PrioritizedPool extends Pool {
  private Predicate<TaskSetManager> shown;

  PrioritizedPool(Enumeration.Value mode) {
    super("", mode, 0, 0);
  }

  /** What is shown from now on; null for all. */
  void show(Predicate<TaskSetManager> which) {
    shown = which;
  }

  @Override
  public ArrayBuffer<TaskSetManager> getSortedTaskSetQueue() {
    ArrayBuffer<TaskSetManager> sets = super.getSortedTaskSetQueue(); // made for this call
    if (shown != null) {
      for (int i = sets.size() - 1; i >= 0; i--) {
        if (!shown.test(sets.apply(i))) {
          sets.remove(i);
        }
      }
    }
    return sets;
  }
}
