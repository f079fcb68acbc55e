package headroom.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.Success$;
import org.apache.spark.scheduler.DAGScheduler;
import org.apache.spark.scheduler.MapStatus$;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.storage.BlockManagerId;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;

/**
 * The tasks of map stages that run, in Spark's own scheduler. All of it is private to Spark in Scala and public to the
 * JVM; two of the methods have other signatures in Scala 2.13 and are called by reflection. Where one is absent stages run to their ends.
 */
final class TaskSets implements Ending.Target {
  private static final String TASK_ENDED = "taskEnded";
  private static final String APPLY = "apply";

  /** What Spark calls the driver among its executors. */
  private static final String DRIVER = "driver";

  private final SparkContext sc;
  private final TaskSchedulerImpl scheduler;
  private final Method taskEnded;
  private final Method mapStatus;

  /** Numbers, downwards from -1, tasks that never ran: Spark's own have numbers from 0 on. */
  private final AtomicLong last = new AtomicLong();

  private TaskSets(SparkContext sc, TaskSchedulerImpl scheduler) throws NoSuchMethodException {
    this.sc = sc;
    this.scheduler = scheduler;
    this.taskEnded = method(DAGScheduler.class, TASK_ENDED, 6, Task.class);
    this.mapStatus = method(MapStatus$.class, APPLY, 3, BlockManagerId.class);
  }

  /** Fails where this Spark does not let stages be ended. */
  static TaskSets of(SparkContext sc) throws ReflectiveOperationException {
    if (!(sc.taskScheduler() instanceof TaskSchedulerImpl)) {
      throw new ClassNotFoundException("tasks are scheduled by " + sc.taskScheduler().getClass().getName());
    }
    for (String name : new String[] {"markPartitionCompleted", "successful", "tasks", "taskInfos", "copiesRunning", "speculatableTasks",
        "addPendingTask"}) {
      method(TaskSetManager.class, name, 0, null);
    }
    method(TaskSchedulerImpl.class, "taskSetManagerForAttempt", 2, int.class);
    method(DAGScheduler.class, "taskStarted", 2, Task.class);
    return new TaskSets(sc, (TaskSchedulerImpl) sc.taskScheduler());
  }

  /** That of the fewest parameters, at least so many, the first of this type. */
  private static Method method(Class<?> of, String name, int parameters, Class<?> first) throws NoSuchMethodException {
    for (Method m : of.getMethods()) {
      Class<?>[] types = m.getParameterTypes();
      if (m.getName().equals(name) && types.length >= parameters && (first == null || types[0] == first)) {
        return m;
      }
    }
    throw new NoSuchMethodException(of.getName() + "." + name);
  }

  /** One partition that was given up; its map output is empty. */
  private static final class GivenUp implements Ending.GivenUp {
    final Task<?> task;
    final int index;

    /** Its attempts that were running, and have been told to end. */
    final Set<Long> attempts = new HashSet<>();

    GivenUp(Task<?> task, int index) {
      this.task = task;
      this.index = index;
    }

    @Override
    public int partition() {
      return task.partitionId();
    }

    @Override
    public Set<Long> attempts() {
      return attempts;
    }
  }

  /** Spark's own lock is held: no task begins or ends in between. */
  @Override
  public List<Ending.GivenUp> giveUp(int stage, int attempt, String why) {
    synchronized (scheduler) {
      Option<TaskSetManager> found = scheduler.taskSetManagerForAttempt(stage, attempt);
      if (found.isEmpty()) {
        return new ArrayList<>();
      }
      TaskSetManager set = found.get();
      Map<Integer, GivenUp> missing = new HashMap<>();
      boolean[] done = set.successful();
      for (int i = 0; i < set.tasks().length; i++) {
        if (!done[i]) {
          missing.put(i, new GivenUp(set.tasks()[i], i));
        }
      }
      for (Iterator<TaskInfo> it = set.taskInfos().valuesIterator(); it.hasNext(); ) {
        TaskInfo t = it.next();
        if (t.running() && missing.containsKey(t.index())) {
          missing.get(t.index()).attempts.add(t.taskId());
        }
      }
      // First none of them is wanted any more, so that none begins again when its attempt is killed.
      missing.values().forEach(g -> set.markPartitionCompleted(g.partition()));
      missing.values().forEach(g -> g.attempts.forEach(id -> scheduler.killTaskAttempt(id, true, why)));
      return new ArrayList<>(missing.values());
    }
  }

  /** Tells Spark that the task has ended well on the driver with nothing for any reduce; no reduce then asks for it. */
  @Override
  public void empty(Ending.GivenUp partition, int reduces) throws ReflectiveOperationException {
    GivenUp g = (GivenUp) partition;
    long now = System.currentTimeMillis();
    BlockManagerId here = SparkEnv.get().blockManager().shuffleServerId();
    TaskInfo info = new TaskInfo(last.decrementAndGet(), g.index, 0, g.partition(), now, DRIVER, here.host(), TaskLocality.ANY(), false);
    info.finishTime_$eq(now);
    sc.dagScheduler().taskStarted(g.task, info);
    try {
      taskEnded.invoke(sc.dagScheduler(), g.task, Success$.MODULE$, status(here, reduces, info.taskId()), Nil$.MODULE$, new long[0], info);
    } catch (InvocationTargetException e) {
      throw new ReflectiveOperationException(e.getCause());
    }
  }

  /**
   * Asks for a second attempt of a partition that runs in one. Spark starts it once nothing waits that it would start before, on a
   * host where none runs of it, counts the first to end, and kills the other: as if its own speculation had asked.
   */
  boolean copy(int stage, int attempt, int partition) {
    synchronized (scheduler) {
      Option<TaskSetManager> found = scheduler.taskSetManagerForAttempt(stage, attempt);
      if (found.isEmpty() || found.get().isZombie()) {
        return false;
      }
      TaskSetManager set = found.get();
      for (int i = 0; i < set.tasks().length; i++) {
        if (set.tasks()[i].partitionId() == partition && !set.successful()[i] && set.copiesRunning()[i] == 1
            && set.speculatableTasks().add(i)) {
          set.addPendingTask(i, true, true);
          sc.dagScheduler().speculativeTaskSubmitted(set.tasks()[i], i);
          scheduler.backend().reviveOffers();
          return true;
        }
      }
      return false;
    }
  }

  @Override
  public void cancel(int stage, String why) {
    sc.cancelStage(stage, why);
  }

  private Object status(BlockManagerId here, int reduces, long task) throws ReflectiveOperationException {
    long[] sizes = new long[reduces];
    return mapStatus.getParameterCount() == 3 ? mapStatus.invoke(MapStatus$.MODULE$, here, sizes, task)
        : mapStatus.invoke(MapStatus$.MODULE$, here, sizes, task, 0L); // since 4.1 with a checksum
  }
}
