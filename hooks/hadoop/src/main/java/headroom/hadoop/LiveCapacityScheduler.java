package headroom.hadoop;

import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The capacity scheduler with Headroom's admission of applications with a deadline, and its line on their pages ({@code
 * yarn.resourcemanager.scheduler.class}). Its queues are those of Hadoop: their maxima are set by the resource manager's
 * web service ({@code shares: capacity}), not here.
 */
public class LiveCapacityScheduler extends CapacityScheduler {
  private static final Logger LOG = LoggerFactory.getLogger(LiveCapacityScheduler.class);

  private final Faults faults = new Faults(LOG);
  private final Gate gate = new Gate(this::getRMContext, faults);

  @Override
  public void serviceStart() throws Exception {
    super.serviceStart();
    faults.run("the plug-in was started", () -> gate.start(getConfig(), shares -> { }));
  }

  @Override
  public void serviceStop() throws Exception {
    faults.run("the plug-in was stopped", gate::stop);
    super.serviceStop();
  }

  @Override
  public void handle(SchedulerEvent event) {
    if (!gate.keeps(event)) {
      super.handle(event);
    }
  }
}
