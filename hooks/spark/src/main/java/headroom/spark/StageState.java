package headroom.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.BitSet;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;

/** The progress of one stage. Not safe for use by several threads. */
final class StageState {
  static final int NONE = -1;

  private static final int NAME_MAX = 80;

  /** Bounds a report: of more attempts the oldest are told, which are those that straggle. */
  private static final int ATTEMPTS_MAX = 256;

  /** Enough for a median. */
  private static final int TOOK_MAX = 255;

  final int id;

  /** What it was to compute of its partitions when it was planned. */
  private final int planned;

  private final String name;
  private final int shuffle;
  private final int partitions;

  /** Partitions that were given up since, and have an empty output. */
  private final BitSet dropped = new BitSet();

  /** Partitions with a result, by the tasks of the attempts that are told of here. */
  private final BitSet results = new BitSet();

  /** Partitions that had their result already when the newest attempt began. */
  private int before;

  private int attempt;

  /** The attempts that run, by their numbers. */
  private final Map<Long, TaskInfo> running = new LinkedHashMap<>();

  /** How long the newest successes took. */
  private final Deque<Long> took = new ArrayDeque<>();

  private int failed;
  private long taskMs;
  private boolean begun;
  private boolean ended;

  /** {@code shuffle} is {@link #NONE} of a result stage. */
  StageState(int id, String name, int shuffle, int kept, int partitions) {
    this.id = id;
    this.name = name.length() > NAME_MAX ? name.substring(0, NAME_MAX) : name;
    this.shuffle = shuffle;
    this.planned = kept;
    this.partitions = partitions;
  }

  static StageState of(StageInfo info, Session session) {
    int shuffle = info.shuffleDepId().isEmpty() ? NONE : (Integer) info.shuffleDepId().get();
    Kept k = session.kept(shuffle);
    return new StageState(info.stageId(), info.name(), shuffle, info.numTasks(), k == null ? info.numTasks() : k.total());
  }

  /** How far it is, for whoever may end it. */
  static final class View {
    final int id;
    final int attempt;
    final int shuffle;
    final int partitions;
    final int tasks;
    final int done;

    private View(StageState s) {
      id = s.id;
      attempt = s.attempt;
      shuffle = s.shuffle;
      partitions = s.partitions;
      tasks = s.tasks();
      done = s.done();
    }
  }

  View view() {
    return new View(this);
  }

  /** Its tasks: what it computes of its partitions. */
  int tasks() {
    return planned - dropped.cardinality();
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
    return Math.min(tasks(), before + results.cardinality());
  }

  boolean has(int partition) {
    return results.get(partition);
  }

  /** It is not computed any more. */
  void drop(int partition) {
    dropped.set(partition);
    results.clear(partition);
  }

  int shuffle() {
    return shuffle;
  }

  /**
   * An attempt has as many tasks as partitions are missing. Where Spark has thrown away all of the stage's output, those that
   * were given up are computed after all: that many are returned.
   */
  int begin(int number, int tasks) {
    int back = 0;
    if (!begun || number > attempt) {
      if (tasks > tasks()) {
        back = dropped.cardinality();
        dropped.clear();
      }
      before = Math.max(0, tasks() - tasks);
      results.clear();
      attempt = number;
    }
    begun = true;
    ended = false;
    return back;
  }

  void end() {
    ended = true;
  }

  void taskBegins(TaskInfo task) {
    running.put(task.taskId(), task);
  }

  void taskSucceeds(TaskInfo task) {
    running.remove(task.taskId());
    results.set(task.partitionId());
    taskMs += task.duration();
    took.addLast(task.duration());
    if (took.size() > TOOK_MAX) {
      took.removeFirst();
    }
  }

  void taskFails(TaskInfo task, boolean killed) {
    running.remove(task.taskId());
    failed += killed ? 0 : 1;
  }

  /** Spark takes a result back that went with its executor. No attempt ends by it. */
  void taskIsLost(int partition) {
    results.clear(partition);
  }

  void into(ObjectNode o) {
    o.put("id", id).put("attempt", attempt).put("name", name).put("kind", shuffle == NONE ? "result" : "map");
    o.put("partitions", partitions).put("kept", tasks()).put("shuffle", shuffle);
    o.put("done", done()).put("running", running.size()).put("failed", failed).put("task_ms", taskMs);
    o.put("begun", begun).put("ended", ended);
    if (map() && begun && !ended) {
      attempts(o);
    }
  }

  /** What decides on copies: how long successes usually take, and since when the oldest attempts run. */
  private void attempts(ObjectNode o) {
    o.put("typical_ms", took.stream().sorted().skip(took.size() / 2).findFirst().orElse(0L));
    ArrayNode told = o.putArray("attempts");
    long now = System.currentTimeMillis();
    running.values().stream().limit(ATTEMPTS_MAX).forEach(t -> told.addObject().put("partition", t.partitionId()).put("host", t.host())
        .put("ms", Math.max(0, now - t.launchTime())));
  }
}
