package headroom.hadoop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.Container;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerEventType;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.Allocation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ContainerUpdates;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAttemptRemovedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.ConfigurableResource;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FSAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FSQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The fair scheduler with queue maxima that follow Headroom ({@code yarn.resourcemanager.scheduler.class}).
 *
 * <p>A daemon thread reads shares every half second, outside all locks, and applies them over the maxima of the
 * operator's file under the scheduler's write lock, like a reload of that file. A reload restores the file's maxima;
 * the shares are applied again within one interval. The file's maxima are in force for queues without a share, and
 * after the validity of the last answer has ended. If an answer names several applications of a queue, they divide it
 * by what each may hold.
 *
 * <p>For an application with a deadline in its tags, admission is asked first ({@link Door}); it is refused with the
 * numbers if the deadline cannot be met.
 */
public class LiveFairScheduler extends FairScheduler {
  private static final Logger LOG = LoggerFactory.getLogger(LiveFairScheduler.class);

  private final Faults faults = new Faults(LOG);
  private final ShareOverlay<ConfigurableResource> overlay = new ShareOverlay<>(new FairQueues(), LOG::info);
  private final Gate gate = new Gate(this::getRMContext, faults);
  private volatile boolean stopped;

  /** Containers of application masters that came too early, by attempt. */
  private final Map<ApplicationAttemptId, List<Container>> early = new ConcurrentHashMap<>();

  /** The queues whose applications have weights of ours; of the thread of the gate alone. */
  private Set<String> weighed = new HashSet<>();

  @Override
  public void serviceStart() throws Exception {
    super.serviceStart();
    faults.run("the plug-in was started", () -> gate.start(getConfig(), this::apply));
  }

  @Override
  public void serviceStop() throws Exception {
    stopped = true;
    faults.run("the plug-in was stopped", gate::stop);
    super.serviceStop();
  }

  @Override
  public void handle(SchedulerEvent event) {
    if (event instanceof AppAttemptRemovedSchedulerEvent) {
      early.remove(((AppAttemptRemovedSchedulerEvent) event).getApplicationAttemptID());
    }
    if (!gate.keeps(event)) {
      super.handle(event);
    }
  }

  private void apply(Shares shares) {
    writeLock.lock();
    try {
      if (stopped) {
        return;
      }
      Set<String> named = new HashSet<>();
      for (Share s : overlay.lay(shares == null ? Collections.<Share>emptyList() : shares.queues)) {
        weigh(s.queue, s);
        named.add(s.queue);
        if (s.preempt) {
          preempt(s);
        }
      }
      weighed.stream().filter(q -> !named.contains(q)).forEach(q -> weigh(q, null));
      weighed = named;
    } finally {
      writeLock.unlock();
    }
  }

  /**
   * Has the applications of a queue divide it as the share says, evenly without one. An application's weight is its
   * priority, which the fair scheduler otherwise leaves at 1; under the write lock nobody else reads it.
   */
  private void weigh(String queue, Share share) {
    List<ApplicationAttemptId> ids = getAppsInQueue(queue);
    if (ids == null) {
      return; // the queue is gone
    }
    for (ApplicationAttemptId id : ids) {
      FSAppAttempt app = getSchedulerApp(id);
      if (app != null) {
        app.getPriority().setPriority(share == null ? Share.WEIGHT : share.weightOf(id.getApplicationId().toString()));
      }
    }
  }

  /** Kills the newest containers of the queue until it fits; never an application master. */
  private void preempt(Share share) {
    FSQueue queue = getQueueManager().getQueue(share.queue);
    if (fits(queue)) {
      return;
    }
    List<RMContainer> newestFirst = taskContainers(share.queue);
    newestFirst.sort(Comparator.comparing(RMContainer::getContainerId).reversed());
    newestFirst.sort(Comparator.comparingLong(RMContainer::getCreationTime).reversed());
    for (RMContainer c : newestFirst) {
      if (fits(queue)) {
        return;
      }
      LOG.info("{}: {} is preempted", share, c.getContainerId());
      // With this status the MapReduce master counts the attempt as killed, not as failed.
      completedContainer(
          c,
          SchedulerUtils.createPreemptedContainerStatus(c.getContainerId(), SchedulerUtils.PREEMPTED_CONTAINER),
          RMContainerEventType.KILL);
    }
  }

  /** Whether a queue uses no more than its maximum of what shares bound; nothing is ended for another resource. */
  private static boolean fits(FSQueue queue) {
    Resource uses = queue.getResourceUsage();
    Resource max = queue.getMaxShare();
    return uses.getMemorySize() <= max.getMemorySize() && uses.getVirtualCores() <= max.getVirtualCores();
  }

  private List<RMContainer> taskContainers(String queue) {
    List<RMContainer> tasks = new ArrayList<>();
    for (ApplicationAttemptId id : getAppsInQueue(queue)) {
      FSAppAttempt app = getSchedulerApp(id);
      if (app != null) {
        app.getLiveContainers().stream().filter(c -> !c.isAMContainer()).forEach(tasks::add);
      }
    }
    return tasks;
  }

  /**
   * Takes no lock that Hadoop's does not. A node's heartbeat between the moment when Hadoop's allocate() has taken in
   * the request for an application master and the moment when it pulls the new containers can hand it the master's
   * container at once. The resource manager ignores the containers of that first answer, and the application would stay
   * in ACCEPTED for ever: so they are kept for the next one, which the event of the same container brings about.
   */
  @Override
  public Allocation allocate(
      ApplicationAttemptId id,
      List<ResourceRequest> ask,
      List<SchedulingRequest> schedulingRequests,
      List<ContainerId> release,
      List<String> blacklistAdditions,
      List<String> blacklistRemovals,
      ContainerUpdates updates) {
    Allocation a = super.allocate(id, ask, schedulingRequests, release, blacklistAdditions, blacklistRemovals, updates);
    boolean asks = ask != null && !ask.isEmpty();
    if (asks && !a.getContainers().isEmpty() || !asks && !early.isEmpty()) {
      faults.run("a master's container was kept", () -> keep(id, asks, a.getContainers()));
    }
    return a;
  }

  private void keep(ApplicationAttemptId id, boolean asks, List<Container> containers) {
    FSAppAttempt app = getSchedulerApp(id);
    if (app == null || !app.getApplicationAttemptId().equals(id)) {
      return; // it has ended, and the list is one that Hadoop shares
    }
    if (asks && app.isWaitingForAMContainer()) {
      early.put(id, new ArrayList<>(containers));
      containers.clear();
    } else if (!asks && early.containsKey(id)) {
      containers.addAll(0, early.remove(id));
    }
  }

  /** The queues of this scheduler, used under the write lock. */
  private final class FairQueues implements ShareOverlay.Queues<ConfigurableResource> {
    @Override
    public ConfigurableResource max(String queue) {
      FSQueue q = getQueueManager().getQueue(queue);
      return q == null ? null : q.getRawMaxShare();
    }

    @Override
    public ConfigurableResource with(ConfigurableResource own, Share share) {
      Resource min = getQueueManager().getQueue(share.queue).getMinShare();
      if (min.getMemorySize() > share.maxMb || min.getVirtualCores() > share.maxVcores) {
        LOG.warn("{}: limited by the guarantee of {} in the operator's file", share, min);
      }
      return new Bounded(own, share, min); // without it the fair scheduler would log a smaller maximum at every heartbeat
    }

    @Override
    public void setMax(String queue, ConfigurableResource max) {
      FSQueue q = getQueueManager().getQueue(queue);
      q.setMaxShare(max);
      q.getMetrics().setMaxShare(q.getMaxShare());
    }
  }
}
