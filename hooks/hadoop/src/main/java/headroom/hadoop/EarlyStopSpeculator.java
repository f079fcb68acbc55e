package headroom.hadoop;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.v2.api.records.JobState;
import org.apache.hadoop.mapreduce.v2.app.AppContext;
import org.apache.hadoop.mapreduce.v2.app.job.Job;
import org.apache.hadoop.mapreduce.v2.app.job.event.TaskAttemptStatusUpdateEvent.TaskAttemptStatus;
import org.apache.hadoop.mapreduce.v2.app.speculate.Speculator;
import org.apache.hadoop.mapreduce.v2.app.speculate.SpeculatorEvent;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.service.CompositeService;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stops a job early from within its application master, so that no process is started for what is dropped
 * ({@code yarn.app.mapreduce.am.job.speculator.class}). The speculator's place is the one that Hadoop leaves open for
 * a part of ours in the application master.
 *
 * <p>Hadoop loads it only where {@code mapreduce.map.speculative} or {@code mapreduce.reduce.speculative} is true. It
 * hands everything on to Hadoop's own speculator, which so does what the job asked for; {@code headroom.speculate}
 * set to false keeps that one quiet, for jobs that are not to speculate but to stop early. {@code
 * headroom.speculation} names a policy of Headroom's instead ({@link Speculation}); while the scheduler does not
 * answer, Hadoop's own speculates.
 *
 * <p>{@link EarlyStop} says what is dropped, and why that is right after a restart and in every race.
 */
public class EarlyStopSpeculator extends CompositeService implements Speculator {
  private static final Logger LOG = LoggerFactory.getLogger(EarlyStopSpeculator.class);

  /** How often killed tasks are checked until all have ended: reduces wait for it. */
  private static final int SETTLE_MS = 100;

  private static final long JOIN_MS = 1000;

  private final Configuration conf;
  private final AppContext context;
  private final MutedSpeculator speculator; // null where the job is not to speculate
  private final String policy; // null where Hadoop's own is the only one
  private final Requests requests; // null where they keep their order
  private final Faults faults = new Faults(LOG);
  private volatile boolean stopped;
  private Thread thread;

  // Of the thread alone.
  private EarlyStop stop; // null until the job runs
  private Speculation speculation; // null without a policy

  /** As Hadoop calls it. */
  public EarlyStopSpeculator(Configuration conf, AppContext context) {
    super(EarlyStopSpeculator.class.getName());
    this.conf = conf;
    this.context = context;
    speculator = conf.getBoolean(Settings.SPECULATE, true) ? new MutedSpeculator(conf, context) : null;
    if (speculator != null) {
      addService(speculator);
    }
    String named = conf.getTrimmed(Settings.POLICY, Settings.POLICY_DEFAULT);
    policy = named.equals(Settings.POLICY_DEFAULT) ? null : named;
    requests = policy == null ? null : faults.or(null, "requests were prepared", this::requests);
  }

  private Requests requests() {
    String fixed = Requests.fixed(conf);
    if (!fixed.isEmpty()) {
      LOG.warn("copies are scheduled after all other maps, in Hadoop's order: {}", fixed);
      return null;
    }
    return new Requests(conf, events());
  }

  @Override
  public void handle(SpeculatorEvent event) {
    if (requests != null && DeallocationNotice.is(event)) {
      faults.run("a request was taken back", () -> requests.noticed(event.getTaskID()));
    }
    if (speculator != null) {
      speculator.handle(event);
    }
  }

  @Override
  public void handleAttempt(TaskAttemptStatus status) {
    if (speculator != null) {
      speculator.handleAttempt(status);
    }
  }

  @Override
  protected void serviceStart() throws Exception {
    super.serviceStart();
    faults.run("early stops were started", this::begin);
  }

  private void begin() throws IOException {
    // Here, not in the thread: Hadoop's master has its job's credentials while it starts its services.
    SchedulerClient client = SchedulerClient.of(
        conf, UserGroupInformation.getCurrentUser().getCredentials(), context.getApplicationID().toString());
    if (client == null) {
      return;
    }
    int intervalMs =
        Math.max(Settings.INTERVAL_MS_MIN, conf.getInt(Settings.STOP_INTERVAL_MS, Settings.INTERVAL_MS_DEFAULT));
    thread = new Thread(() -> follow(client, intervalMs), "headroom-early-stop");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  protected void serviceStop() throws Exception {
    stopped = true;
    faults.run("early stops were ended", this::end);
    super.serviceStop();
  }

  private void end() throws InterruptedException {
    if (thread != null) {
      thread.interrupt();
      thread.join(JOIN_MS);
    }
  }

  private void follow(SchedulerClient client, int intervalMs) {
    while (!stopped && !Thread.currentThread().isInterrupted()) {
      // To give up after a fault would leave reduces waiting for what has been killed already.
      boolean done = faults.or(false, "early stop", () -> {
        round(client, intervalMs);
        return true;
      });
      if (!done) {
        faults.run("waiting", () -> Thread.sleep(intervalMs));
      }
    }
  }

  private void round(SchedulerClient client, int intervalMs) throws InterruptedException {
    Job job = runningJob();
    if (job == null) {
      Thread.sleep(SETTLE_MS);
      return;
    }
    if (stop == null) {
      String id = job.getID().toString();
      MasterJob tasks = new MasterJob(job, conf, events(), requests);
      if (policy != null && !job.isUber()) {
        speculation = new Speculation(client, id, policy, tasks, System::nanoTime);
      }
      stop = new EarlyStop(client, id, tasks, conf.getBoolean(Settings.END_RUNNING, false));
      LOG.info("early stops of {} are on, polling every {} ms", id, intervalMs);
    }
    stop.ask();
    if (speculation != null) {
      speculation.ask();
      mute(speculation.holds());
    }
    settle(intervalMs);
  }

  private void mute(boolean on) {
    if (speculator != null) {
      speculator.mute(on);
    }
  }

  /** Sleeps for an interval, and meanwhile continues with what was decided. */
  private void settle(int intervalMs) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(intervalMs);
    while (!(stop.settle() & (speculation == null || speculation.settle())) && System.nanoTime() < end) {
      Thread.sleep(SETTLE_MS);
    }
    TimeUnit.NANOSECONDS.sleep(end - System.nanoTime());
  }

  /** An application master has one job. A job that fails, is killed or is over is left alone. */
  private Job runningJob() {
    for (Job job : context.getAllJobs().values()) {
      if (job.getState() == JobState.RUNNING) {
        return job;
      }
    }
    return null;
  }

  @SuppressWarnings("unchecked") // Hadoop's own type is raw
  private EventHandler<Event<?>> events() {
    return (EventHandler<Event<?>>) (EventHandler<?>) context.getEventHandler();
  }
}
