package headroom.hadoop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.SortedSet;
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
    /** All of them, by number, as they stand. */
    Map<Integer, MapTask> tasks();

    /** Kills them and counts them as dropped. */
    void kill(Collection<MapTask> tasks);

    /** Takes a task out of the counters again: it had a result after all. */
    void uncount(MapTask task);

    /** Tells the reduces that a task will never have output. */
    void announceAbsent(Collection<MapTask> tasks);
  }

  private static final Logger LOG = LoggerFactory.getLogger(EarlyStop.class);

  /** A killed task whose end is not settled yet. */
  private static final class Pending {
    final MapTask task;
    int seenKilled;

    Pending(MapTask task) {
      this.task = task;
    }
  }

  private final SchedulerClient client;
  private final String id;
  private final Job job;
  private final Map<Integer, Pending> pending = new HashMap<>();
  private final Map<Integer, MapTask> settled = new HashMap<>();
  private final Repeated answers = new Repeated(LOG);

  EarlyStop(SchedulerClient client, String id, Job job) {
    this.client = client;
    this.id = id;
    this.job = job;
  }

  /** One round: what is recorded is obeyed first, then what waits is named. */
  void ask() {
    try {
      Stop stop = client.stop(id);
      Map<Integer, MapTask> tasks = job.tasks();
      obey(stop.dropped, tasks);
      List<MapTask> candidates = Candidates.of(tasks.values(), stop);
      if (!candidates.isEmpty()) {
        obey(client.drop(id, tasks.size(), candidates), job.tasks());
      }
      answers.well("early stops are answered again");
    } catch (IOException e) {
      // 404 is everyday: the scheduler has not met the job yet, or does not look after it.
      answers.trouble("the job runs on exactly: " + e.getMessage());
    }
  }

  private void obey(SortedSet<Integer> dropped, Map<Integer, MapTask> tasks) throws IOException {
    if (!dropped.isEmpty() && !tasks.containsKey(dropped.last())) {
      throw new IOException("task " + dropped.last() + " is recorded as dropped, but the job has only " + tasks.size());
    }
    List<MapTask> kills = new ArrayList<>();
    for (int n : dropped) {
      MapTask t = tasks.get(n);
      boolean new_ = !pending.containsKey(n) && !settled.containsKey(n);
      if (new_ && (t.state == MapTask.State.WAITING || t.state == MapTask.State.BEGUN)) {
        pending.put(n, new Pending(t));
        kills.add(t);
      }
    }
    if (!kills.isEmpty()) {
      job.kill(kills);
    }
  }

  /** Follows killed tasks to their end. Returns whether all have reached it. */
  boolean settle() {
    if (pending.isEmpty()) {
      return true;
    }
    Map<Integer, MapTask> tasks = job.tasks();
    List<MapTask> absent = new ArrayList<>();
    for (Iterator<Pending> i = pending.values().iterator(); i.hasNext(); ) {
      Pending p = i.next();
      switch (tasks.get(p.task.number).state) {
        case RESULT:
          LOG.warn("map task {} had its result before it was killed: it counts", p.task.number);
          job.uncount(p.task);
          break;
        case KILLED:
          // The success of a task that ran may be on its way still when its attempt has ended already.
          if (p.task.state == MapTask.State.BEGUN && ++p.seenKilled < 10) {
            continue;
          }
          absent.add(p.task);
          break;
        default:
          continue;
      }
      settled.put(p.task.number, p.task);
      i.remove();
    }
    if (!absent.isEmpty()) {
      job.announceAbsent(absent);
    }
    return pending.isEmpty();
  }
}
