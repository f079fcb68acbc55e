package headroom.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.BitSet;
import org.apache.spark.scheduler.StageInfo;

/** How far one stage is. Not safe for use by several threads. */
final class StageState {
  static final int NONE = -1;

  private static final int NAME_MAX = 80;

  final int id;

  /** Its tasks: what it computes of its partitions. */
  final int kept;

  private final String name;
  private final int shuffle;
  private final int partitions;

  /** Partitions with a result, by the tasks of the attempts that are told of here. */
  private final BitSet results = new BitSet();

  /** Partitions that had their result already when the newest attempt began. */
  private int before;

  private int attempt;
  private int running;
  private int failed;
  private long taskMs;
  private boolean begun;
  private boolean ended;

  /** {@code shuffle} is {@link #NONE} of a result stage. */
  StageState(int id, String name, int shuffle, int kept, int partitions) {
    this.id = id;
    this.name = name.length() > NAME_MAX ? name.substring(0, NAME_MAX) : name;
    this.shuffle = shuffle;
    this.kept = kept;
    this.partitions = partitions;
  }

  static StageState of(StageInfo info, Session session) {
    int shuffle = info.shuffleDepId().isEmpty() ? NONE : (Integer) info.shuffleDepId().get();
    Kept k = session.kept(shuffle);
    return new StageState(info.stageId(), info.name(), shuffle, info.numTasks(), k == null ? info.numTasks() : k.total());
  }

  boolean begun() {
    return begun;
  }

  boolean ended() {
    return ended;
  }

  /** It ends in a shuffle. */
  boolean map() {
    return shuffle != NONE;
  }

  int done() {
    return Math.min(kept, before + results.cardinality());
  }

  /** An attempt has as many tasks as partitions are missing. */
  void begin(int number, int tasks) {
    if (!begun || number > attempt) {
      before = kept - tasks;
      results.clear();
      attempt = number;
    }
    begun = true;
    ended = false;
  }

  void end() {
    ended = true;
  }

  void taskBegins() {
    running++;
  }

  void taskSucceeds(int partition, long ms) {
    running = Math.max(0, running - 1);
    results.set(partition);
    taskMs += ms;
  }

  void taskFails(boolean killed) {
    running = Math.max(0, running - 1);
    failed += killed ? 0 : 1;
  }

  /** Spark takes a result back that went with its executor. No attempt ends by it. */
  void taskIsLost(int partition) {
    results.clear(partition);
  }

  void into(ObjectNode o) {
    o.put("id", id).put("attempt", attempt).put("name", name).put("kind", shuffle == NONE ? "result" : "map");
    o.put("partitions", partitions).put("kept", kept).put("shuffle", shuffle);
    o.put("done", done()).put("running", running).put("failed", failed).put("task_ms", taskMs);
    o.put("begun", begun).put("ended", ended);
  }
}
