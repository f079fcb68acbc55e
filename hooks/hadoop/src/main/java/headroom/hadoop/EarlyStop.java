package headroom.hadoop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stops one job early: asks, names what waits, and kills exactly what is recorded as dropped.
 *
 * <p>The invariant: in the end a task is recorded as dropped if and only if it has no result, and its absence is
 * announced to the reduces once. How each way out of step is met:
 *
 * <ul>
 *   <li>Not recorded, not killed: nothing is killed but what an answer of the scheduler names.
 *   <li>Recorded, but it has begun meanwhile (while it was being committed, or its answer was lost, or the
 *       application master is a new one that scheduled the task again): it is killed while it runs.
 *   <li>Recorded, but it has finished meanwhile: the result may have been read already, so it stays and counts; the
 *       job is better than recorded, never worse. The task is counted as not dropped, and stays so when a lost node
 *       makes it run again: else one reduce might have it and another not.
 *   <li>A kill and a success that cross: the task ends as killed, but its output is offered to the reduces. It counts
 *       as a result too, and no absence is announced.
 *   <li>A dropped task is final: a killed task has no output that a lost node could take along, and the application
 *       master lets nothing follow upon a killed task. A new application master takes only finished tasks over from
 *       the old one; it asks anew and finds the rest recorded.
 * </ul>
 *
 * <p>Not safe for use by several threads.
 */
final class EarlyStop {
  /** The map tasks of a job within its application master. */
  interface Job {
    /** All of them, by number, with their present state. */
    Map<Integer, MapTask> tasks();

    /** Kills them and counts them as dropped. */
    void kill(Collection<MapTask> tasks);

    /** Removes a task from the counters of dropped ones: it had a result after all. */
    void uncount(MapTask task);

    /** Announces to the reduces that a task will never have output. */
    void announceAbsent(Collection<MapTask> tasks);
  }

  private static final Logger LOG = LoggerFactory.getLogger(EarlyStop.class);

  /** Rounds for which a killed task that had begun must stay without a result before it is called absent. */
  static final int ROUNDS_MIN = 10;

  private final SchedulerClient client;
  private final String id;
  private final Job job;
  private final boolean endRunning;
  private final Repeated answers = new Repeated(LOG);

  /** All tasks that are known to be recorded as dropped; it only grows. */
  private final SortedSet<Integer> recorded = new TreeSet<>();

  private final Map<Integer, Pending> pending = new HashMap<>();
  private final Set<Integer> settled = new HashSet<>();

  /** With endRunning, tasks that run are named too once the job has what it promised. */
  EarlyStop(SchedulerClient client, String id, Job job, boolean endRunning) {
    this.client = client;
    this.id = id;
    this.job = job;
    this.endRunning = endRunning;
  }

  /** Asks the scheduler: first applies what is recorded, then names the waiting tasks. */
  void ask() {
    try {
      Stop stop = client.stop(id);
      Map<Integer, MapTask> tasks = job.tasks();
      record(stop.dropped, tasks);
      List<MapTask> candidates = Candidates.of(tasks.values(), stop, endRunning);
      if (!candidates.isEmpty()) {
        record(client.drop(id, tasks.size(), candidates), job.tasks());
      }
      answers.well("scheduler reachable again: early stops are on");
    } catch (IOException e) {
      // 404 is normal: the scheduler does not know the job yet, or does not manage it.
      answers.trouble("no early stop: " + e.getMessage());
    }
  }

  private void record(SortedSet<Integer> dropped, Map<Integer, MapTask> tasks) throws IOException {
    if (!dropped.isEmpty() && !tasks.containsKey(dropped.last())) {
      throw new IOException("task " + dropped.last() + " is recorded as dropped, but the job has only " + tasks.size());
    }
    recorded.addAll(dropped);
    killRecorded(tasks);
  }

  private void killRecorded(Map<Integer, MapTask> tasks) {
    List<MapTask> kills = new ArrayList<>();
    for (int n : recorded) {
      MapTask t = tasks.get(n);
      boolean met = pending.containsKey(n) || settled.contains(n);
      if (!met && (t.state == MapTask.State.WAITING || t.state == MapTask.State.BEGUN)) {
        pending.put(n, new Pending(t));
        kills.add(t);
      }
    }
    if (!kills.isEmpty()) {
      job.kill(kills);
    }
  }

  /**
   * Continues with what is recorded, without a request: kills what has been scheduled meanwhile, and monitors what was
   * killed until its end. Returns whether nothing is left to do until the next request.
   */
  boolean settle() {
    if (recorded.size() == settled.size()) {
      return true;
    }
    Map<Integer, MapTask> tasks = job.tasks();
    killRecorded(tasks);
    List<MapTask> absent = new ArrayList<>();
    for (Iterator<Pending> i = pending.values().iterator(); i.hasNext(); ) {
      Pending p = i.next();
      MapTask.State state = tasks.get(p.task.number).state;
      if (state == MapTask.State.RESULT) {
        LOG.warn("map task {} had a result before it was killed; the result counts", p.task.number);
        job.uncount(p.task);
      } else if (state == MapTask.State.KILLED && p.over()) {
        absent.add(p.task);
      } else {
        continue;
      }
      settled.add(p.task.number);
      i.remove();
    }
    if (!absent.isEmpty()) {
      job.announceAbsent(absent);
    }
    return pending.isEmpty() && recorded.stream().noneMatch(n -> tasks.get(n).state == MapTask.State.NEW);
  }

  /** A killed task whose end is not settled yet. */
  private static final class Pending {
    final MapTask task;
    private int rounds;

    Pending(MapTask task) {
      this.task = task;
    }

    /** The success of a task that ran may be on its way still when its attempt has ended already: it is given time. */
    boolean over() {
      return task.state == MapTask.State.WAITING || ++rounds >= ROUNDS_MIN;
    }
  }
}
