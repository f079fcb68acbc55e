package headroom.hadoop;

import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptId;
import org.apache.hadoop.mapreduce.v2.app.AppContext;
import org.apache.hadoop.mapreduce.v2.app.rm.preemption.NoopAMPreemptionPolicy;
import org.apache.hadoop.mapreduce.v2.app.speculate.Speculator;
import org.apache.hadoop.mapreduce.v2.app.speculate.SpeculatorEvent;
import org.slf4j.LoggerFactory;

/**
 * Notifies the speculator when the container allocator has taken a request back ({@code
 * yarn.app.mapreduce.am.preemption.policy}). Otherwise it is Hadoop's own policy, which does nothing.
 *
 * <p>The allocator calls it right after it has taken the request back, before it assigns another container. The
 * notice goes through the master's event queue, behind any earlier assignment, which is what {@link Requests} needs.
 */
public class DeallocationNotice extends NoopAMPreemptionPolicy {
  private final Faults faults = new Faults(LoggerFactory.getLogger(DeallocationNotice.class));
  private AppContext context;

  @Override
  public void init(AppContext of) {
    context = of;
    super.init(of);
  }

  @Override
  @SuppressWarnings("unchecked") // Hadoop's own type is raw
  public void handleCompletedContainer(TaskAttemptId attempt) {
    super.handleCompletedContainer(attempt);
    // The event that a task needs no more containers than before.
    faults.run("a request was taken back", () -> context.getEventHandler().handle(new SpeculatorEvent(attempt.getTaskId(), 0)));
  }

  /**
   * Whether an event is such a notice. Hadoop's own events of this type come with each request, and change the number
   * by one.
   */
  static boolean is(SpeculatorEvent event) {
    return event.getType() == Speculator.EventType.TASK_CONTAINER_NEED_UPDATE && event.containersNeededChange() == 0;
  }
}
