package headroom.spark.pigeon;

import java.lang.invoke.MethodHandles;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskState;
import org.apache.spark.scheduler.ExecutorLossReason;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.TaskDescription;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSet;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.scheduler.WorkerOffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Enumeration;
import scala.Option;
import scala.collection.IndexedSeq;
import scala.collection.Iterator;
import scala.collection.Seq;
import scala.collection.immutable.List$;

/** Spark's own scheduler of tasks, shown only the cores that masters have granted. */
final class PigeonScheduler extends TaskSchedulerImpl {
  private static final Logger LOG = LoggerFactory.getLogger(PigeonScheduler.class);

  /** Between two looks at what is wanted. */
  private static final long LOOK_MS = 100;

  private static final long COMPLAIN_MS = 10_000;
  private static final int NAME_MAX = 100;

  private final Options options;
  private final Offers offers;
  private final Ledger ledger = new Ledger(new Random());
  private final List<Link> links = new ArrayList<>();
  private final ScheduledExecutorService looks = Executors.newSingleThreadScheduledExecutor(body -> {
    Thread t = new Thread(body, "headroom-pigeon-look");
    t.setDaemon(true);
    return t;
  });

  /** Made when Spark first asks for it, which may be in its own constructor. */
  private PrioritizedPool pool;

  /** Executors that Spark has offered; without any there is nothing to want. */
  private final Set<String> executors = new HashSet<>();

  private long complained;

  PigeonScheduler(SparkContext sc, Options options) {
    super(sc);
    this.options = options;
    try {
      this.offers = Offers.of(MethodHandles.lookup());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this version of Spark is not supported: " + e.getMessage(), e);
    }
    // New at each start, so that masters need no number of the start beside it.
    String name = sc.appName().replaceAll("[^A-Za-z0-9._-]", "-");
    String application = name.substring(0, Math.min(NAME_MAX, name.length())) + "-" + UUID.randomUUID();
    for (int i = 0; i < options.masters.size(); i++) {
      links.add(new Link(i, options.masters.get(i), options, ledger, application, this::granted));
    }
  }

  /** A clock that never goes back; never 0. */
  static long now() {
    return System.nanoTime() / 1_000_000 + Integer.MAX_VALUE;
  }

  Options options() {
    return options;
  }

  /** Refuses the application where no master answers, before any executor is started. */
  @Override
  public void start() {
    long until = now() + options.patienceMs;
    links.forEach(Link::start);
    synchronized (ledger) {
      for (long left = options.patienceMs; ledger.lastHeard() == 0 && left > 0; left = until - now()) {
        try {
          ledger.wait(left);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          break;
        }
      }
    }
    if (ledger.lastHeard() == 0) {
      String why = troubles();
      links.forEach(Link::stop);
      throw new IllegalStateException("no master of a group is active after " + options.patienceMs / 1000 + " s: " + why
          + ". Start the masters, or set spark.master to running ones");
    }
    super.start();
    looks.scheduleWithFixedDelay(this::look, LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
  }

  private String troubles() {
    String all = links.stream().map(Link::trouble).filter(t -> !t.isEmpty()).collect(Collectors.joining("; "));
    return all.isEmpty() ? "all reachable ones are on standby" : all;
  }

  @Override
  public void stop(int exitCode) {
    looks.shutdownNow();
    links.forEach(Link::stop);
    LOG.info("masters have granted {} slots", ledger.grants());
    super.stop(exitCode);
  }

  @Override
  public Pool rootPool() {
    if (pool == null) {
      pool = new PrioritizedPool(schedulingMode());
    }
    return pool;
  }

  /** A set of tasks that cannot be scheduled by grants fails as a whole, and its job with it. */
  @Override
  public void submitTasks(TaskSet set) {
    String refused = refused(set);
    if (refused != null) {
      dagScheduler().taskSetFailed(set, refused, Option.empty());
      return;
    }
    super.submitTasks(set);
    want();
  }

  private static String refused(TaskSet set) {
    if (set.tasks().length > 0 && set.tasks()[0].isBarrier()) {
      return "a barrier stage needs all its slots at once, and masters grant them one by one";
    }
    try {
      Options.high(priority(set.properties(), "low"));
      return null;
    } catch (IllegalArgumentException e) {
      return e.getMessage();
    }
  }

  private static String priority(Properties p, String otherwise) {
    return p == null ? otherwise : p.getProperty(Options.PRIORITY, otherwise).trim();
  }

  private boolean high(TaskSetManager set) {
    return priority(set.taskSet().properties(), options.high ? "high" : "low").equals("high");
  }

  /** Tells the ledger how many tasks wait. */
  private synchronized void want() {
    int[] waiting = new int[2];
    if (!executors.isEmpty()) {
      for (Iterator<TaskSetManager> it = rootPool().getSortedTaskSetQueue().iterator(); it.hasNext(); ) {
        TaskSetManager set = it.next();
        if (!set.isZombie()) {
          // A copy of a slow task is wanted beside those that have not begun.
          waiting[high(set) ? 1 : 0] += Math.max(0, set.numTasks() - set.tasksSuccessful() - set.runningTasks()) + set.speculatableTasks().size();
        }
      }
    }
    ledger.want(waiting, now());
  }

  private void granted() {
    backend().reviveOffers();
  }

  /** Fails the jobs that run. Where none does, Spark's error() would throw, as for an application that is not registered. */
  private synchronized void fail(String why) {
    if (rootPool().getSortedTaskSetQueue().size() > 0) {
      error(why);
    }
  }

  void look() {
    try {
      want();
      long silent = now() - ledger.lastHeard();
      if (silent > options.patienceMs) {
        ledger.giveUp(now());
        fail("no master of a group has been active for " + silent / 1000 + " s: " + troubles());
      } else if (silent > Ledger.SILENCE_MS && now() - complained > COMPLAIN_MS) {
        complained = now();
        LOG.warn("no master of a group has been active for {} s; tasks are waiting: {}", silent / 1000, troubles());
      } else if (ledger.unused()) {
        granted();
      }
    } catch (Exception e) { // any of Scala's: none is checked there, and one that leaves here would end the looks
      LOG.warn("computing the number of wanted slots failed", e);
    }
  }

  /** On Scala 2.12. */
  @Override
  @SuppressWarnings("unchecked")
  public synchronized Seq<Seq<TaskDescription>> resourceOffers(IndexedSeq<WorkerOffer> workers, boolean all) {
    return (Seq<Seq<TaskDescription>>) (Object) launch(workers, all);
  }

  /** On Scala 2.13. */
  @SuppressWarnings("unchecked")
  public synchronized scala.collection.immutable.Seq<scala.collection.immutable.Seq<TaskDescription>> resourceOffers(
      scala.collection.immutable.IndexedSeq<WorkerOffer> workers, boolean all) {
    return (scala.collection.immutable.Seq<scala.collection.immutable.Seq<TaskDescription>>) (Object) launch(workers, all);
  }

  /** Offers Spark's scheduler, for each priority, as many cores as there are grants. */
  private scala.collection.immutable.List<Object> launch(IndexedSeq<WorkerOffer> workers, boolean all) {
    Map<String, Integer> free = new HashMap<>();
    Map<String, String> nodes = new HashMap<>();
    for (Iterator<WorkerOffer> it = workers.iterator(); it.hasNext(); ) {
      WorkerOffer o = it.next();
      free.put(o.executorId(), o.cores());
      nodes.put(o.executorId(), options.nodes.getOrDefault(o.host(), o.host()));
      executors.add(o.executorId());
    }
    scala.collection.immutable.List<Object> launched = List$.MODULE$.empty();
    for (boolean high : new boolean[] {true, false}) {
      Map<String, Integer> grants = ledger.unused(high);
      scala.collection.immutable.List<WorkerOffer> shown = List$.MODULE$.empty();
      for (Iterator<WorkerOffer> it = workers.iterator(); it.hasNext(); ) {
        WorkerOffer o = it.next();
        String node = nodes.get(o.executorId());
        int cores = Math.min(free.get(o.executorId()), grants.getOrDefault(node, 0));
        grants.merge(node, -cores, Integer::sum);
        shown = shown.$colon$colon(offers.withCores(o, cores));
      }
      pool.show(set -> high(set) == high);
      try {
        Seq<?> sets = (Seq<?>) offers.call(this, shown.toIndexedSeq(), all);
        for (Iterator<?> it = sets.iterator(); it.hasNext(); ) {
          Seq<?> tasks = (Seq<?>) it.next();
          launched = launched.$colon$colon(tasks);
          for (Iterator<?> t = tasks.iterator(); t.hasNext(); ) {
            TaskDescription task = (TaskDescription) t.next();
            ledger.begin(task.taskId(), task.executorId(), nodes.get(task.executorId()), high);
            free.merge(task.executorId(), -1, Integer::sum);
          }
        }
      } finally {
        pool.show(null);
      }
    }
    return launched;
  }

  @Override
  public void statusUpdate(long task, Enumeration.Value state, java.nio.ByteBuffer data) {
    super.statusUpdate(task, state, data);
    if (TaskState.isFinished(state)) {
      ledger.end(task);
    }
  }

  @Override
  public void executorLost(String executor, ExecutorLossReason reason) {
    super.executorLost(executor, reason);
    synchronized (this) {
      executors.remove(executor);
    }
    ledger.lost(executor);
    want();
  }
}
