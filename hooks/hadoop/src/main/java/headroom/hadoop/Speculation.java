package headroom.hadoop;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Speculates by the decisions of Headroom's scheduler: sends it the state of the map tasks, and carries out which of
 * them get the next containers: copies of running tasks before waiting ones if the policy decides so.
 *
 * <p>Decisions are made in advance, because a free container goes to a request that exists: for one container in four
 * of those that the job holds. No more than these have been moved to the front at any time.
 *
 * <p>Not safe for use by several threads.
 */
final class Speculation {
  /** The map tasks of a job within its application master. */
  interface Job {
    /** All of them that were not dropped, as they stand. */
    List<TaskView> views();

    /** Asks for another attempt of a task; false where it bears none (yet). */
    boolean copy(int task);

    /** Moves the attempt of a task that waits before the others; false where none waits (yet). */
    boolean toFront(int task);
  }

  private static final Logger LOG = LoggerFactory.getLogger(Speculation.class);

  /** More map tasks would not fit into a request. */
  static final int TASKS_MAX = 8000;

  /** Without an answer for so long, Hadoop speculates as it does alone. */
  static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(10);

  /** One container in so many is given away ahead. */
  private static final int AHEAD = 4;

  /** Inputs that differ by less are alike, and Hadoop's own order, which knows where they lie, is better. */
  private static final double ALIKE = 0.1;

  private final SchedulerClient client;
  private final String id;
  private final String policy;
  private final Job job;
  private final LongSupplier nanos;
  private final Repeated answers = new Repeated(LOG);

  /** Tasks whose attempt is to be moved as soon as it waits. */
  private final Set<Integer> wanted = new HashSet<>();

  /** Tasks whose attempt was moved. */
  private final Set<Integer> moved = new HashSet<>();

  private final Map<Integer, Reported> reported = new HashMap<>();
  private long answered;

  Speculation(SchedulerClient client, String id, String policy, Job job, LongSupplier nanos) {
    this.client = client;
    this.id = id;
    this.policy = policy;
    this.job = job;
    this.nanos = nanos;
    answered = nanos.getAsLong() - SILENCE_NANOS;
  }

  /** Whether the scheduler's word is new enough to hold. */
  boolean holds() {
    return nanos.getAsLong() - answered < SILENCE_NANOS;
  }

  /** Asks the scheduler what to run next. */
  void ask() {
    List<TaskView> views = job.views();
    if (views.size() > TASKS_MAX) {
      answers.trouble("using Hadoop's own speculation: " + views.size() + " map tasks, more than " + TASKS_MAX);
      return;
    }
    forget(views);
    try {
      int tasks = views.stream().mapToInt(v -> v.number + 1).max().orElse(0);
      List<Action> actions = Action.parse(client.speculate(id, body(views)), tasks);
      answered = nanos.getAsLong();
      answers.well("scheduler reachable again: speculation is on");
      take(actions, views);
    } catch (IOException e) {
      answers.trouble("using Hadoop's own speculation: " + e.getMessage());
    }
  }

  /** Forgets what has got its container, or is over. */
  private void forget(Collection<TaskView> views) {
    Set<Integer> waiting = new HashSet<>();
    Set<Integer> live = new HashSet<>();
    for (TaskView v : views) {
      if (!v.done) {
        live.add(v.number);
      }
      if (!v.done && v.waits) {
        waiting.add(v.number);
      }
    }
    moved.retainAll(waiting);
    wanted.retainAll(live);
    reported.keySet().retainAll(live);
  }

  private ObjectNode body(List<TaskView> views) {
    int width = views.stream().mapToInt(v -> v.running).sum();
    int slots = Math.max(0, Math.max(1, width / AHEAD) - moved.size() - wanted.size());
    ObjectNode body = Json.MAPPER.createObjectNode().put("policy", policy).put("slots", slots);
    for (String list : new String[] {"waiting", "running", "done"}) {
      body.withArray(list);
    }
    for (TaskView v : views) {
      if (v.done) {
        body.withArray("done").addObject().put("task", v.number).put("bytes", v.bytes).put("took_ms", v.tookMs);
      } else if (v.running > 0 || given(v.number)) {
        running(body, v);
      } else {
        body.withArray("waiting").addObject().put("task", v.number).put("bytes", v.bytes);
      }
    }
    return body;
  }

  /** A task that has been given the next container counts as one that runs: nobody decides about it twice. */
  private boolean given(int task) {
    return wanted.contains(task) || moved.contains(task);
  }

  private void running(ObjectNode body, TaskView v) {
    long now = nanos.getAsLong();
    Reported r = reported.get(v.number);
    if (r == null || r.progress != v.progress) {
      r = new Reported(v.progress, v.elapsedMs, now);
      reported.put(v.number, r);
    }
    body.withArray("running").addObject().put("task", v.number).put("bytes", v.bytes)
        .put("copies", v.running + (v.waits || wanted.contains(v.number) ? 1 : 0))
        .put("progress", r.progress).put("elapsed_ms", r.elapsedMs)
        .put("since_ms", TimeUnit.NANOSECONDS.toMillis(now - r.nanos)).put("node", v.node);
  }

  private void take(List<Action> actions, List<TaskView> views) {
    Map<Integer, TaskView> by = new HashMap<>();
    views.forEach(v -> by.put(v.number, v));
    for (Action a : actions) {
      TaskView v = by.get(a.task);
      if (v == null || v.done || given(a.task) || a.copy != v.running > 0) {
        continue; // it has changed since
      }
      if (a.copy) {
        if (job.copy(a.task)) {
          LOG.info("map task {} gets a copy, before waiting tasks", a.task);
          wanted.add(a.task);
        }
      } else if (!alike(v, views)) {
        LOG.info("map task {} is next", a.task);
        wanted.add(a.task);
      }
    }
    settle();
  }

  /** Whether a task is like the one that Hadoop would run next. */
  private boolean alike(TaskView chosen, List<TaskView> views) {
    for (TaskView v : views) {
      if (!v.done && v.running == 0 && !given(v.number)) {
        return v.number == chosen.number || Math.abs(v.bytes - chosen.bytes) <= ALIKE * Math.max(v.bytes, chosen.bytes);
      }
    }
    return true;
  }

  /** Goes on with what was decided, without asking. Returns whether nothing is left to do. */
  boolean settle() {
    for (Iterator<Integer> i = wanted.iterator(); i.hasNext(); ) {
      int task = i.next();
      if (job.toFront(task)) {
        moved.add(task);
        i.remove();
      }
    }
    return wanted.isEmpty();
  }

  /** When a task's progress changed last. */
  private static final class Reported {
    final double progress;
    final long elapsedMs;
    final long nanos;

    Reported(double progress, long elapsedMs, long nanos) {
      this.progress = progress;
      this.elapsedMs = elapsedMs;
      this.nanos = nanos;
    }
  }
}
