package headroom.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.Resubmitted$;
import org.apache.spark.Success$;
import org.apache.spark.TaskKilled;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import scala.collection.Iterator;
import scala.collection.Seq;

/** Follows Spark's events: stages, tasks done, executors. Safe for use by several threads. */
final class Progress extends SparkListener {
  /** Stages that are told of; bounds a report. */
  static final int ENDED_MAX = 64;

  static final int OTHERS_MAX = 192;

  /** Stages that are remembered; the sums of older ones are. */
  private static final int STAGES_MAX = 10_000;

  private final Session session;
  private final Runnable changed;
  private final Map<Integer, StageState> stages = new LinkedHashMap<>();
  private final Map<Integer, Set<Integer>> stagesOfJobs = new HashMap<>();
  private final Executors executors = new Executors();

  private long forgottenDone;
  private long forgottenTotal;

  /** {@code changed} is told when a stage begins or ends, or an executor comes or goes; it must not wait for anything. */
  Progress(Session session, Runnable changed) {
    this.session = session;
    this.changed = changed;
  }

  @Override
  public synchronized void onJobStart(SparkListenerJobStart e) {
    Set<Integer> ofJob = new HashSet<>();
    // By position: the Seq in stageInfos() is another one in Scala 2.13.
    for (Iterator<?> it = ((Seq<?>) e.productElement(2)).iterator(); it.hasNext(); ) {
      ofJob.add(stage((StageInfo) it.next()).id);
    }
    stagesOfJobs.put(e.jobId(), ofJob);
  }

  /** What the job did not need to begin was there from an earlier one. */
  @Override
  public synchronized void onJobEnd(SparkListenerJobEnd e) {
    Set<Integer> ofJob = stagesOfJobs.remove(e.jobId());
    if (ofJob == null) {
      return;
    }
    stagesOfJobs.values().forEach(ofJob::removeAll);
    executors.release(ofJob);
    ofJob.removeIf(id -> stages.containsKey(id) && stages.get(id).begun());
    stages.keySet().removeAll(ofJob);
    changed.run();
  }

  @Override
  public synchronized void onStageSubmitted(SparkListenerStageSubmitted e) {
    StageState s = stage(e.stageInfo());
    session.dropped(s.shuffle(), -s.begin(e.stageInfo().attemptNumber(), e.stageInfo().numTasks()));
    changed.run();
  }

  @Override
  public synchronized void onStageCompleted(SparkListenerStageCompleted e) {
    stage(e.stageInfo()).end();
    forget();
    changed.run();
  }

  @Override
  public synchronized void onTaskStart(SparkListenerTaskStart e) {
    if (given(e.taskInfo())) {
      return;
    }
    executors.taskBegins(e.taskInfo().executorId(), e.taskInfo().host(), e.taskInfo().taskId(), e.taskInfo().launchTime());
    StageState s = stages.get(e.stageId());
    if (s != null) {
      s.taskBegins(e.taskInfo());
    }
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd e) {
    if (given(e.taskInfo())) {
      return;
    }
    if (e.taskInfo() != null && e.reason() != Resubmitted$.MODULE$) { // that one ended before
      executors.taskEnds(e.taskInfo().executorId(), e.taskInfo().host(), e.taskInfo().taskId());
    }
    StageState s = stages.get(e.stageId());
    if (s == null) {
      return;
    }
    if (e.reason() == Success$.MODULE$) {
      s.taskSucceeds(e.taskInfo());
      if (s.map() && wanted(e.stageId())) {
        executors.keeps(e.taskInfo().executorId(), e.stageId(), e.taskInfo().duration());
      }
    } else if (e.reason() == Resubmitted$.MODULE$) {
      s.taskIsLost(e.taskInfo().partitionId());
    } else {
      s.taskFails(e.taskInfo(), e.reason() instanceof TaskKilled);
    }
  }

  @Override
  public synchronized void onExecutorAdded(SparkListenerExecutorAdded e) {
    if (!e.executorId().equals("driver")) { // a local master's only one
      executors.added(e.executorId(), e.executorInfo().executorHost(), e.executorInfo().totalCores());
      changed.run();
    }
  }

  @Override
  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved e) {
    executors.removed(e.executorId());
    changed.run();
  }

  /** It never ran: it stands for a partition that was given up. */
  private static boolean given(TaskInfo task) {
    return task != null && task.taskId() < 0;
  }

  /** An action that needs the stage is under way. */
  private boolean wanted(int stage) {
    return stagesOfJobs.values().stream().anyMatch(ofJob -> ofJob.contains(stage));
  }

  /** Oldest first. */
  synchronized List<Executors.View> executors() {
    return executors.views(System.currentTimeMillis());
  }

  synchronized void into(ObjectNode o) {
    long done = forgottenDone;
    long total = forgottenTotal;
    for (StageState s : stages.values()) {
      done += s.done();
      total += s.tasks();
    }
    ArrayNode told = o.putArray("stages");
    for (StageState s : newest()) {
      s.into(told.addObject());
    }
    executors.into(o);
    o.put("tasks_done", done).put("tasks_total", total);
  }

  /** The map stages that run. */
  synchronized List<StageState.View> running() {
    List<StageState.View> views = new ArrayList<>();
    for (StageState s : stages.values()) {
      if (s.map() && s.begun() && !s.ended()) {
        views.add(s.view());
      }
    }
    return views;
  }

  /** Whether a partition of a stage has a result. */
  synchronized boolean has(int stage, int partition) {
    return stages.containsKey(stage) && stages.get(stage).has(partition);
  }

  /** A partition is given up. */
  synchronized void drop(int stage, int partition) {
    StageState s = stages.get(stage);
    if (s != null) {
      s.drop(partition);
      session.dropped(s.shuffle(), 1);
    }
  }

  private Deque<StageState> newest() {
    Deque<StageState> told = new ArrayDeque<>();
    int ended = 0;
    int others = 0;
    List<StageState> all = new ArrayList<>(stages.values());
    for (int i = all.size() - 1; i >= 0; i--) {
      StageState s = all.get(i);
      if (s.ended() ? ended++ < ENDED_MAX : others++ < OTHERS_MAX) {
        told.addFirst(s);
      }
    }
    return told;
  }

  private StageState stage(StageInfo info) {
    return stages.computeIfAbsent(info.stageId(), id -> StageState.of(info, session));
  }

  private void forget() {
    java.util.Iterator<StageState> oldest = stages.values().iterator();
    while (stages.size() > STAGES_MAX && oldest.hasNext()) {
      StageState s = oldest.next();
      if (s.ended()) {
        forgottenDone += s.done();
        forgottenTotal += s.tasks();
        oldest.remove();
      }
    }
  }
}
