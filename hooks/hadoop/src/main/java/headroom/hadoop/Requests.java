package headroom.hadoop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskId;
import org.apache.hadoop.mapreduce.v2.app.job.TaskAttempt;
import org.apache.hadoop.mapreduce.v2.app.job.event.TaskAttemptKillEvent;
import org.apache.hadoop.mapreduce.v2.app.rm.ContainerAllocator;
import org.apache.hadoop.mapreduce.v2.app.rm.ContainerAllocatorEvent;
import org.apache.hadoop.mapreduce.v2.app.rm.ContainerRequestEvent;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets map attempts that wait for a container overtake the others: their request is taken back, and made again as
 * Hadoop makes it for a task that has failed before, whose priority is higher (5 instead of 20). Among themselves these
 * come in the order in which they were asked for.
 *
 * <p>An attempt must never have two requests: the container of the second would reach an attempt that runs already, and
 * end the job. So the second follows only upon the allocator's notice that the first is gone ({@link
 * DeallocationNotice}), and is decided in the thread that changes attempts. When the allocator had assigned a container
 * in the meantime, it has released it by taking the request back; then the attempt is killed, and Hadoop asks for its
 * successor at the higher priority by itself.
 */
final class Requests {
  private static final Logger LOG = LoggerFactory.getLogger(Requests.class);

  private static final String RESOURCES = MRJobConfig.MAP_RESOURCE_TYPE_PREFIX;

  private final EventHandler<Event<?>> events;
  private final Resource each;

  /** Attempts whose request is being taken back. */
  private final Map<TaskId, TaskAttempt> back = new ConcurrentHashMap<>();

  Requests(Configuration conf, EventHandler<Event<?>> events) {
    this.events = events;
    // The allocator puts in the sizes of the job's first request.
    each = Resource.newInstance(
        conf.getInt(MRJobConfig.MAP_MEMORY_MB, MRJobConfig.DEFAULT_MAP_MEMORY_MB),
        conf.getInt(MRJobConfig.MAP_CPU_VCORES, MRJobConfig.DEFAULT_MAP_CPU_VCORES));
  }

  /** Why requests keep their order in jobs of this configuration; empty where they can be moved. */
  static String fixed(Configuration conf) {
    if (conf.getInt(MRJobConfig.JOB_RUNNING_MAP_LIMIT, 0) > 0) {
      // The allocator counts a request of a failed map that was taken back against the limit for ever.
      return MRJobConfig.JOB_RUNNING_MAP_LIMIT + " is set";
    }
    if (!DeallocationNotice.class.getName().equals(conf.getTrimmed(MRJobConfig.MR_AM_PREEMPTION_POLICY))) {
      return MRJobConfig.MR_AM_PREEMPTION_POLICY + " is not " + DeallocationNotice.class.getName();
    }
    for (Map.Entry<String, String> e : conf) {
      if (e.getKey().startsWith(RESOURCES) && !e.getKey().substring(RESOURCES.length()).matches("memory|memory-mb|vcores")) {
        return e.getKey() + " is set, which a second request would lose";
      }
    }
    return "";
  }

  /** Moves an attempt that waits for a container before those that have not been moved. */
  void toFront(TaskAttempt attempt) {
    if (back.putIfAbsent(attempt.getID().getTaskId(), attempt) == null) {
      events.handle(new ContainerAllocatorEvent(attempt.getID(), ContainerAllocator.EventType.CONTAINER_DEALLOCATE));
    }
  }

  /** The allocator has dealt with a request or a container of this task; called by the thread that changes attempts. */
  void noticed(TaskId task) {
    TaskAttempt attempt = back.remove(task);
    if (attempt == null || attempt.isFinished()) {
      return;
    }
    TaskAttemptId id = attempt.getID();
    if (attempt.getAssignedContainerID() == null) {
      events.handle(ContainerRequestEvent.createContainerRequestEventForFailedContainer(id, Resource.newInstance(each)));
      return;
    }
    LOG.info("{} had a container when its request was taken back; starting it again", id);
    events.handle(new TaskAttemptKillEvent(id, "Headroom moved its request, and its container is gone", true));
  }
}
