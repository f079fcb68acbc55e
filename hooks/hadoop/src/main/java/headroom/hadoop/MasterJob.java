package headroom.hadoop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapred.TaskCompletionEvent;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.TypeConverter;
import org.apache.hadoop.mapreduce.split.JobSplit;
import org.apache.hadoop.mapreduce.split.SplitMetaInfoReader;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptCompletionEvent;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptCompletionEventStatus;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptState;
import org.apache.hadoop.mapreduce.v2.api.records.TaskId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskState;
import org.apache.hadoop.mapreduce.v2.api.records.TaskType;
import org.apache.hadoop.mapreduce.v2.app.job.Job;
import org.apache.hadoop.mapreduce.v2.app.job.Task;
import org.apache.hadoop.mapreduce.v2.app.job.TaskAttempt;
import org.apache.hadoop.mapreduce.v2.app.job.event.JobCounterUpdateEvent;
import org.apache.hadoop.mapreduce.v2.app.job.event.JobDiagnosticsUpdateEvent;
import org.apache.hadoop.mapreduce.v2.app.job.event.JobTaskAttemptCompletedEvent;
import org.apache.hadoop.mapreduce.v2.app.job.event.TaskEvent;
import org.apache.hadoop.mapreduce.v2.app.job.event.TaskEventType;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.apache.hadoop.yarn.util.Records;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A job within its application master: read through its own read locks, changed only by events.
 *
 * <p>Tasks are killed, not failed. A killed task counts as completed and not failed, so it neither fails the job nor
 * needs mapreduce.map.failures.maxpercent, which would hide real failures.
 */
final class MasterJob implements EarlyStop.Job, Speculation.Job {
  private static final Logger LOG = LoggerFactory.getLogger(MasterJob.class);

  private final Job job;
  private final Configuration conf;
  private final EventHandler<Event<?>> events;
  private final Requests requests; // null where requests keep their order
  private JobSplit.TaskSplitMetaInfo[] splits;

  MasterJob(Job job, Configuration conf, EventHandler<Event<?>> events, Requests requests) {
    this.job = job;
    this.conf = conf;
    this.events = events;
    this.requests = requests;
  }

  @Override
  public Map<Integer, MapTask> tasks() {
    Set<Integer> results = everSucceeded();
    Map<Integer, MapTask> tasks = new TreeMap<>();
    for (Task t : job.getTasks(TaskType.MAP).values()) {
      int number = t.getID().getId();
      tasks.put(number, new MapTask(number, bytes(number), state(t, results.contains(number))));
    }
    return tasks;
  }

  /** Maps with an output that is, or once was, offered to the reduces; one that was lost again is OBSOLETE. */
  private Set<Integer> everSucceeded() {
    Set<Integer> maps = new HashSet<>();
    for (TaskCompletionEvent e : job.getMapAttemptCompletionEvents(0, Integer.MAX_VALUE)) {
      TaskCompletionEvent.Status s = e.getTaskStatus();
      if (s == TaskCompletionEvent.Status.SUCCEEDED || s == TaskCompletionEvent.Status.OBSOLETE) {
        maps.add(e.getTaskAttemptId().getTaskID().getId());
      }
    }
    return maps;
  }

  private static MapTask.State state(Task task, boolean everSucceeded) {
    if (everSucceeded || task.getState() == TaskState.SUCCEEDED) {
      return MapTask.State.RESULT;
    }
    boolean ended = true;
    boolean waits = true;
    boolean failed = false;
    for (TaskAttempt a : task.getAttempts().values()) {
      TaskAttemptState s = a.getState();
      boolean over = s == TaskAttemptState.KILLED || s == TaskAttemptState.FAILED;
      ended &= over;
      // A killed attempt has left nothing behind: it was preempted, or its node was lost.
      waits &= over || waits(a);
      failed |= s == TaskAttemptState.FAILED;
    }
    switch (task.getState()) {
      case KILLED:
        return ended ? MapTask.State.KILLED : MapTask.State.BEGUN;
      case SCHEDULED:
      case RUNNING:
        // To drop a task that has failed before would hide the failure.
        return waits && !failed ? MapTask.State.WAITING : MapTask.State.BEGUN;
      case NEW:
        return MapTask.State.NEW;
      default:
        return MapTask.State.FAILED;
    }
  }

  /** Read once, from what the job was submitted with; without it the lengths are unknown, and the job goes on. */
  private long bytes(int number) {
    if (splits == null) {
      try {
        Path dir = new Path(conf.get(MRJobConfig.MAPREDUCE_JOB_DIR));
        splits = SplitMetaInfoReader.readSplitMetaInfo(
            TypeConverter.fromYarn(job.getID()), dir.getFileSystem(conf), conf, dir);
      } catch (IOException | RuntimeException e) {
        LOG.warn("lengths of the input splits unknown", e);
        splits = new JobSplit.TaskSplitMetaInfo[0];
      }
    }
    return number < splits.length ? Math.max(0, splits[number].getInputDataLength()) : 0;
  }

  /**
   * The counters are sent along with the kills, not after them: a job without reduces may be over when the last of
   * the kills has been dealt with.
   */
  @Override
  public void kill(Collection<MapTask> tasks) {
    tasks.forEach(t -> events.handle(new TaskEvent(task(t).getID(), TaskEventType.T_KILL)));
    count(tasks.size(), tasks.stream().mapToLong(t -> t.bytes).sum());
    String numbers = tasks.stream().map(t -> String.valueOf(t.number)).limit(100).collect(Collectors.joining(" "));
    String text = "Headroom dropped " + tasks.size() + " map tasks: " + numbers + (tasks.size() > 100 ? " ..." : "");
    LOG.info(text);
    events.handle(new JobDiagnosticsUpdateEvent(job.getID(), text));
  }

  @Override
  public void uncount(MapTask task) {
    count(-1, -task.bytes);
  }

  private void count(long tasks, long bytes) {
    JobCounterUpdateEvent e = new JobCounterUpdateEvent(job.getID());
    e.addCounterUpdate(EarlyStopCounter.DROPPED_TASKS, tasks);
    e.addCounterUpdate(EarlyStopCounter.DROPPED_BYTES, bytes);
    events.handle(e);
  }

  /**
   * Hadoop tells reduces of no attempt that had no container, and they would wait for its output for ever. The event
   * that says "this map has failed for good, do not wait for it" is the one that a job with tolerated failures sends.
   */
  @Override
  public void announceAbsent(Collection<MapTask> tasks) {
    for (MapTask t : tasks) {
      TaskAttemptCompletionEvent e = Records.newRecord(TaskAttemptCompletionEvent.class);
      e.setEventId(-1); // the job numbers it
      e.setAttemptId(anyAttempt(task(t)));
      e.setStatus(TaskAttemptCompletionEventStatus.TIPFAILED);
      e.setMapOutputServerAddress("");
      e.setAttemptRunTime(0);
      events.handle(new JobTaskAttemptCompletedEvent(e));
    }
  }

  @Override
  public List<TaskView> views() {
    Set<Integer> results = everSucceeded();
    List<TaskView> views = new ArrayList<>();
    for (Task t : job.getTasks(TaskType.MAP).values()) {
      boolean done = results.contains(t.getID().getId()) || t.getState() == TaskState.SUCCEEDED;
      if (done || t.getState() == TaskState.SCHEDULED || t.getState() == TaskState.RUNNING) {
        views.add(view(t, done));
      }
    }
    views.sort(Comparator.comparingInt(v -> v.number));
    return views;
  }

  private TaskView view(Task t, boolean done) {
    int running = 0;
    boolean waits = false;
    long took = 0;
    TaskAttempt furthest = null;
    for (TaskAttempt a : t.getAttempts().values()) {
      if (a.getState() == TaskAttemptState.SUCCEEDED) {
        took = Math.max(0, a.getFinishTime() - a.getLaunchTime());
      } else if (waits(a)) {
        waits = true;
      } else if (!a.isFinished()) {
        running++;
        furthest = furthest == null || a.getProgress() > furthest.getProgress() ? a : furthest;
      }
    }
    int number = t.getID().getId();
    if (furthest == null) {
      return new TaskView(number, bytes(number), done, took, 0, waits, 0, 0, "");
    }
    long began = furthest.getLaunchTime();
    long elapsed = began == 0 ? 0 : Math.max(0, System.currentTimeMillis() - began);
    String node = furthest.getNodeId() == null ? "" : furthest.getNodeId().toString();
    return new TaskView(number, bytes(number), done, took, running, waits, elapsed, furthest.getProgress(), node);
  }

  private static boolean waits(TaskAttempt a) {
    TaskAttemptState s = a.getState();
    return (s == TaskAttemptState.NEW || s == TaskAttemptState.STARTING) && a.getAssignedContainerID() == null;
  }

  @Override
  public boolean copy(int number) {
    Task task = task(number);
    if (task.getState() != TaskState.RUNNING) {
      return false; // one whose first attempt has not been launched yet bears no copy: Hadoop would end the job
    }
    events.handle(new TaskEvent(task.getID(), TaskEventType.T_ADD_SPEC_ATTEMPT));
    return true;
  }

  @Override
  public boolean toFront(int number) {
    if (requests == null) {
      return true;
    }
    for (TaskAttempt a : task(number).getAttempts().values()) {
      // One that is new has no request yet.
      if (a.getState() == TaskAttemptState.STARTING && a.getAssignedContainerID() == null) {
        requests.toFront(a);
        return true;
      }
    }
    return false;
  }

  private Task task(MapTask t) {
    return task(t.number);
  }

  private Task task(int number) {
    TaskId any = job.getTasks(TaskType.MAP).keySet().iterator().next();
    TaskId id = Records.newRecord(TaskId.class);
    id.setJobId(any.getJobId());
    id.setTaskType(TaskType.MAP);
    id.setId(number);
    return job.getTask(id);
  }

  private static TaskAttemptId anyAttempt(Task task) {
    return task.getAttempts().keySet().iterator().next();
  }
}
