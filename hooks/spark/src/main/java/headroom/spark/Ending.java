package headroom.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;

/**
 * Ends map stages that run as soon as enough of their partitions are done: what waits is never computed, what runs is
 * killed, and each gives an empty map output. Safe for use by several threads.
 *
 * <p>A partition has one of the two outputs for good. One that ran when its stage was ended keeps its own if it ends well
 * before the kill has reached it, and is empty once its attempts are known to be over.
 */
final class Ending extends SparkListener {
  /** What is done to Spark. */
  interface Target {
    /** Takes all partitions without a result from a stage's attempt, and kills what runs of them; empty where there is no such attempt. */
    List<GivenUp> giveUp(int stage, int attempt, String why);

    /** Gives one of them an empty output for so many reduces. */
    void empty(GivenUp partition, int reduces) throws ReflectiveOperationException;

    /** Lets a stage fail. */
    void cancel(int stage, String why);
  }

  /** A partition that was given up. */
  interface GivenUp {
    int partition();

    /** Its attempts that ran then. */
    Set<Long> attempts();
  }

  /**
   * How long an attempt may take to end after it was killed. Executors report one that they were told to kill as killed, even
   * if its own code goes on, so an output cannot come from it afterwards.
   */
  static final long KILL_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final class Waiting {
    final GivenUp partition;
    final Set<Long> attempts;
    final long since;

    Waiting(GivenUp partition, long now) {
      this.partition = partition;
      this.attempts = new HashSet<>(partition.attempts());
      this.since = now;
    }
  }

  private final Session session;
  private final Progress progress;
  private final Target target;

  /** By stage: partitions that were given up while they ran, and whose attempts are not over. */
  private final Map<Integer, List<Waiting>> waiting = new HashMap<>();

  Ending(Session session, Progress progress, Target target) {
    this.session = session;
    this.progress = progress;
    this.target = target;
  }

  /** {@code now} is by System.nanoTime. */
  synchronized void look(long now) {
    double end = session.end(now);
    if (end == 0 && waiting.isEmpty()) {
      return; // the most usual: nothing is to be ended, and nothing is left of what was
    }
    List<StageState.View> running = progress.running();
    waiting.keySet().retainAll(running.stream().map(s -> s.id).collect(Collectors.toSet()));
    for (StageState.View s : running) {
      int reduces = session.reduces(s.shuffle);
      if (end > 0 && reduces > 0 && s.done < s.tasks && s.done >= Choice.count(s.partitions, end)) {
        end(s, end, now);
      }
      settle(s, reduces, now);
    }
  }

  /** Spark tells it after {@code progress} has heard of it. */
  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd e) {
    if (e.taskInfo() != null) {
      waiting.getOrDefault(e.stageId(), new ArrayList<>()).forEach(w -> w.attempts.remove(e.taskInfo().taskId()));
    }
  }

  private void end(StageState.View s, double end, long now) {
    String why = "Headroom: stage " + s.id + " ends with " + s.done + " of " + s.partitions + " partitions, "
        + Choice.count(s.partitions, end) + " are enough";
    List<GivenUp> gone = target.giveUp(s.id, s.attempt, why);
    if (!gone.isEmpty()) {
      session.say(why);
    }
    gone.forEach(g -> waiting.computeIfAbsent(s.id, id -> new ArrayList<>()).add(new Waiting(g, now)));
  }

  /** Gives those an empty output that nothing runs of any more. */
  private void settle(StageState.View s, int reduces, long now) {
    for (Iterator<Waiting> it = waiting.getOrDefault(s.id, new ArrayList<>()).iterator(); it.hasNext(); ) {
      Waiting w = it.next();
      if (progress.has(s.id, w.partition.partition())) {
        it.remove(); // its own output was quicker
      } else if (w.attempts.isEmpty() || now - w.since > KILL_NANOS) {
        empty(s, w.partition, reduces);
        it.remove();
      }
    }
  }

  private void empty(StageState.View s, GivenUp g, int reduces) {
    progress.drop(s.id, g.partition());
    try {
      target.empty(g, reduces);
    } catch (ReflectiveOperationException e) {
      // Nothing computes the partition any more: a job that fails is better than one that never ends.
      target.cancel(s.id, "Headroom: partition " + g.partition() + " cannot be given up: " + e);
    }
  }
}
