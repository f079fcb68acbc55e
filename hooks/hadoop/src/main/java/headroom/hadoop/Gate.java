package headroom.hadoop;

import java.io.IOException;
import java.util.Collections;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEventType;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppState;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttemptState;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What Headroom adds to a scheduler of the resource manager, whichever it is: applications with a deadline are held
 * until Headroom has decided about them ({@link Door}), and the pages of running ones show its line.
 */
final class Gate {
  private static final Logger LOG = LoggerFactory.getLogger(Gate.class);

  private static final long JOIN_MS = 1000;

  private final Supplier<RMContext> context;
  private final Faults faults;
  private final Repeated answers = new Repeated(LOG);
  private volatile boolean stopped;
  private volatile Door door; // null where nobody is asked
  private Thread thread;

  // Of the thread alone.
  private Shares last;
  private long lastNanos;
  private Map<String, String> shown = Collections.emptyMap();

  /** Applies the shares of each round, in one thread. */
  interface Follower {
    /** With null while no answer is valid. */
    void follow(Shares shares);
  }

  Gate(Supplier<RMContext> context, Faults faults) {
    this.context = context;
    this.faults = faults;
  }

  /** Starts where the configuration names a scheduler. */
  void start(Configuration conf, Follower follower) {
    SchedulerClient client = SchedulerClient.of(conf);
    if (client == null) {
      return;
    }
    door = new Door(client, faults, v -> events().handle(((Arrival) v).event), this::reject, System::nanoTime);
    int intervalMs =
        Math.max(Settings.INTERVAL_MS_MIN, conf.getInt(Settings.SHARES_INTERVAL_MS, Settings.INTERVAL_MS_DEFAULT));
    thread = new Thread(() -> poll(client, intervalMs, follower), "headroom-shares");
    thread.setDaemon(true);
    thread.start();
  }

  void stop() throws InterruptedException {
    stopped = true;
    if (door != null) {
      door.close();
    }
    if (thread != null) {
      thread.interrupt();
      thread.join(JOIN_MS);
    }
  }

  /**
   * Whether an event of the resource manager ends here: an application with a deadline is held until Headroom has
   * decided about it, and then passed on to the scheduler again, in the same thread as its end, so that their order is
   * kept.
   */
  boolean keeps(SchedulerEvent event) {
    if (door == null || !(event instanceof AppAddedSchedulerEvent)) {
      return false;
    }
    AppAddedSchedulerEvent added = (AppAddedSchedulerEvent) event;
    return faults.or(false, "an application arrived", () -> !added.getIsAppRecovering() && keeps(added));
  }

  private boolean keeps(AppAddedSchedulerEvent added) {
    RMApp app = context.get().getRMApps().get(added.getApplicationId());
    if (app == null) {
      return false;
    }
    Arrival v = new Arrival(app, added);
    if (!v.wishes().wrong.isEmpty()) {
      reject(v, v.wishes().wrong);
      return true;
    }
    // One that was ended while it was held does not enter: its end has passed here already.
    return door.holds(v) || (v.wishes().deadlineS > 0 && !v.stands());
  }

  @SuppressWarnings("unchecked") // Hadoop's own type is raw
  private EventHandler<Event<?>> events() {
    return (EventHandler<Event<?>>) (EventHandler<?>) context.get().getDispatcher().getEventHandler();
  }

  /** Like Hadoop refuses an application for an unknown queue: the reason is in its diagnostics. */
  private void reject(Door.Visitor v, String reason) {
    LOG.info("{} refused: {}", v.id(), reason);
    events().handle(new RMAppEvent(((Arrival) v).event.getApplicationId(), RMAppEventType.APP_REJECTED, "Headroom refuses " + v.id() + ": " + reason));
  }

  private void poll(SchedulerClient client, int intervalMs, Follower follower) {
    LOG.info("following Headroom, polling every {} ms", intervalMs);
    while (!stopped && !Thread.currentThread().isInterrupted()) {
      ask(client);
      boolean valid = last != null && System.nanoTime() - lastNanos < TimeUnit.SECONDS.toNanos(last.validS);
      // A queue may disappear meanwhile; the next round uses the remaining ones.
      faults.run("shares were applied", () -> follower.follow(valid ? last : null));
      faults.run("lines were shown", () -> show(valid ? last.lines : Collections.<String, String>emptyMap()));
      faults.run("waiting", () -> Thread.sleep(intervalMs));
    }
  }

  private void ask(SchedulerClient client) {
    long asked = System.nanoTime();
    try {
      last = client.shares(faults.count());
      lastNanos = asked;
      answers.well("scheduler reachable again: shares are on");
    } catch (IOException | RuntimeException | LinkageError | StackOverflowError e) {
      answers.trouble("no shares: " + e.getMessage());
    }
  }

  /** Shows the lines, and no others, among the diagnostics of the running applications. */
  private void show(Map<String, String> lines) {
    Set<String> ids = new HashSet<>(shown.keySet());
    ids.addAll(lines.keySet());
    for (String id : ids) {
      RMApp app = context.get().getRMApps().get(ApplicationId.fromString(id));
      RMAppAttempt attempt = app == null ? null : app.getCurrentAppAttempt();
      if (attempt == null || attempt.getState() != RMAppAttemptState.RUNNING) {
        continue;
      }
      String line = lines.get(id);
      if (line != null ? !line.equals(attempt.getDiagnostics()) : shown.get(id).equals(attempt.getDiagnostics())) {
        attempt.updateAMLaunchDiagnostics(line);
      }
    }
    shown = lines;
  }

  /** An application that was submitted. */
  private static final class Arrival implements Door.Visitor {
    /** Names that differ later count as one: characters of which the scheduler takes 300 bytes. */
    private static final int NAME_MAX = 75;

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
    public String name() {
      String name = app.getName() == null ? "" : app.getName();
      return name.substring(0, Math.min(name.length(), NAME_MAX));
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
}
