package headroom.hadoop;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.api.records.SchedulingRequest;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEventType;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppState;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainerEventType;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.Allocation;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ContainerUpdates;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.ConfigurableResource;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FSAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FSQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler;
import org.apache.hadoop.yarn.util.resource.Resources;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The fair scheduler with queue maxima that follow Headroom ({@code yarn.resourcemanager.scheduler.class}).
 * | <p>A daemon thread reads shares every half second, outside all locks, and applies them over the maxima of the
 * operator's file under the scheduler's write lock, like a reload of that file. A reload restores the file's maxima;
 * the shares are applied again within one interval. The file's maxima are in force for queues without a share, and
 * after the validity of the last answer has ended. If an answer names several applications of a queue, they divide it
 * by what each may hold.
 * | <p>For an application with a deadline in its tags, admission is asked first ({@link Door}); it is refused with the
 * numbers if the deadline cannot be met.
 */
public class LiveFairScheduler extends FairScheduler {
  private static final Logger LOG = LoggerFactory.getLogger(LiveFairScheduler.class);

  private static final long JOIN_MS = 1000;

  private final Repeated answers = new Repeated(LOG);
  private final ShareOverlay<ConfigurableResource> overlay = new ShareOverlay<>(new FairQueues(), LOG::info);
  private volatile boolean stopped;
  private Thread thread;
  private SchedulerClient client;
  private volatile Door door; // null where nobody is asked

  // Of the thread alone.
  private Shares last;
  private Set<String> weighed = new HashSet<>();
  private long lastNanos;

  @Override
  public void serviceStart() throws Exception {
    super.serviceStart();
    Configuration conf = getConfig();
    client = SchedulerClient.of(conf);
    if (client == null) {
      return;
    }
    door = new Door(client, v -> events().handle(((Arrival) v).event), this::reject, System::nanoTime);
    int intervalMs =
        Math.max(Settings.INTERVAL_MS_MIN, conf.getInt(Settings.SHARES_INTERVAL_MS, Settings.INTERVAL_MS_DEFAULT));
    thread = new Thread(() -> follow(intervalMs), "headroom-shares");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void serviceStop() throws Exception {
    stopped = true;
    if (door != null) {
      door.close();
    }
    if (thread != null) {
      thread.interrupt();
      thread.join(JOIN_MS);
    }
    super.serviceStop();
  }

  /**
   * An application with a deadline is held until Headroom has decided about it, and then passed on here: in the same
   * thread as its end, so that their order is kept.
   */
  @Override
  public void handle(SchedulerEvent event) {
    if (door != null && event instanceof AppAddedSchedulerEvent) {
      AppAddedSchedulerEvent added = (AppAddedSchedulerEvent) event;
      RMApp app = getRMContext().getRMApps().get(added.getApplicationId());
      if (app != null && !added.getIsAppRecovering()) {
        Arrival v = new Arrival(app, added);
        if (!v.wishes().wrong.isEmpty()) {
          reject(v, v.wishes().wrong);
          return;
        }
        if (door.holds(v)) {
          return;
        }
        if (v.wishes().deadlineS > 0 && !v.stands()) {
          return; // it was ended while it was held, and its end has passed here already
        }
      }
    }
    super.handle(event);
  }

  @SuppressWarnings("unchecked") // Hadoop's own type is raw
  private EventHandler<Event<?>> events() {
    return (EventHandler<Event<?>>) (EventHandler<?>) getRMContext().getDispatcher().getEventHandler();
  }

  /** Like Hadoop refuses an application for an unknown queue: the reason is in its diagnostics. */
  private void reject(Door.Visitor v, String reason) {
    LOG.info("{} refused: {}", v.id(), reason);
    events().handle(new RMAppEvent(((Arrival) v).event.getApplicationId(), RMAppEventType.APP_REJECTED, "Headroom refuses " + v.id() + ": " + reason));
  }

  /** An application that was submitted. */
  private static final class Arrival implements Door.Visitor {
    private final RMApp app;
    private final AppAddedSchedulerEvent event;
    private final Wishes wishes;

    Arrival(RMApp app, AppAddedSchedulerEvent event) {
      this.app = app;
      this.event = event;
      wishes = Wishes.of(app.getApplicationTags());
    }

    @Override
    public String id() {
      return event.getApplicationId().toString();
    }

    @Override
    public String user() {
      return event.getUser();
    }

    @Override
    public String queue() {
      return event.getQueue();
    }

    @Override
    public Wishes wishes() {
      return wishes;
    }

    @Override
    public boolean stands() {
      return app.getState() == RMAppState.SUBMITTED;
    }
  }

  private void follow(int intervalMs) {
    LOG.info("queue maxima follow Headroom, polling every {} ms", intervalMs);
    while (!stopped) {
      try {
        ask();
        apply();
        Thread.sleep(intervalMs);
      } catch (InterruptedException e) {
        return;
      } catch (RuntimeException e) {
        // A queue may disappear meanwhile; the next round uses the remaining ones.
        LOG.warn("live maxima not applied, retrying in " + intervalMs + " ms", e);
        pause(intervalMs);
      }
    }
  }

  private static void pause(int ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private void ask() {
    long asked = System.nanoTime();
    try {
      last = client.shares();
      lastNanos = asked;
      answers.well("scheduler reachable again: shares are on");
    } catch (IOException e) {
      answers.trouble("no shares: " + e.getMessage());
    }
  }

  private void apply() {
    boolean valid = last != null && System.nanoTime() - lastNanos < TimeUnit.SECONDS.toNanos(last.validS);
    writeLock.lock();
    try {
      if (stopped) {
        return;
      }
      Set<String> named = new HashSet<>();
      for (Share s : overlay.lay(valid ? last.queues : Collections.<Share>emptyList())) {
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
    Resource max = queue.getMaxShare();
    if (Resources.fitsIn(queue.getResourceUsage(), max)) {
      return;
    }
    List<RMContainer> newestFirst = taskContainers(share.queue);
    newestFirst.sort(Comparator.comparing(RMContainer::getContainerId).reversed());
    newestFirst.sort(Comparator.comparingLong(RMContainer::getCreationTime).reversed());
    for (RMContainer c : newestFirst) {
      if (Resources.fitsIn(queue.getResourceUsage(), max)) {
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
   * Holds the write lock, for the sake of the first answer: a node's heartbeat between the moment when stock
   * allocate() has taken in the asks and the moment when it pulls the new containers can hand it the container of the
   * application master unasked; the resource manager drops it, and the application stays in ACCEPTED for ever.
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
    writeLock.lock();
    try {
      return super.allocate(id, ask, schedulingRequests, release, blacklistAdditions, blacklistRemovals, updates);
    } finally {
      writeLock.unlock();
    }
  }

  /** The queues of this scheduler, used under the write lock. */
  private final class FairQueues implements ShareOverlay.Queues<ConfigurableResource> {
    @Override
    public ConfigurableResource max(String queue) {
      FSQueue q = getQueueManager().getQueue(queue);
      return q == null ? null : q.getRawMaxShare();
    }

    /** Resources other than memory and vcores, such as GPUs, stay as the operator has set them. */
    @Override
    public ConfigurableResource with(ConfigurableResource own, Share share) {
      Resource max = Resources.clone(own.getResource(getClusterResource()));
      max.setMemorySize(share.maxMb);
      max.setVirtualCores(share.maxVcores);
      Resource min = getQueueManager().getQueue(share.queue).getMinShare();
      if (!Resources.fitsIn(min, max)) {
        // The fair scheduler would enforce it too, and log it on every heartbeat.
        LOG.warn("{}: limited by the guarantee of {} in the operator's file", share, min);
      }
      return new ConfigurableResource(Resources.componentwiseMax(max, min));
    }

    @Override
    public void setMax(String queue, ConfigurableResource max) {
      FSQueue q = getQueueManager().getQueue(queue);
      q.setMaxShare(max);
      q.getMetrics().setMaxShare(q.getMaxShare());
    }
  }
}
