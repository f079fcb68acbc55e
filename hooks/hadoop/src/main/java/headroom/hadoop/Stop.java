package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.SortedSet;

/** One answer to GET /v1/jobs/JOB/stop. */
final class Stop {
  /** An early stop is in force: map tasks that have not begun may be dropped. */
  final boolean inForce;

  /** The least tasks that must be completed; 0 while no stop is in force. */
  final int minTasks;

  /** The tasks that are recorded as dropped. They are never to run, stop in force or not. */
  final SortedSet<Integer> dropped;

  /** The job has what it promised: what runs may be given up too, where its owner lets it. */
  final boolean over;

  Stop(boolean inForce, int minTasks, SortedSet<Integer> dropped, boolean over) {
    this.inForce = inForce;
    this.minTasks = minTasks;
    this.dropped = dropped;
    this.over = over;
  }

  static Stop parse(JsonNode answer) throws IOException {
    boolean inForce = Json.bool(answer, "stop");
    int minTasks = inForce ? (int) Json.whole(answer, "min_tasks", 0, Integer.MAX_VALUE) : 0;
    return new Stop(inForce, minTasks, Json.tasks(answer, "dropped"), answer.has("over") && Json.bool(answer, "over"));
  }
}
