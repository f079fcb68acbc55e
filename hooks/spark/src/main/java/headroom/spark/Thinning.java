package headroom.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.PartitionPruningRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.scheduler.JobSubmitted;
import org.apache.spark.scheduler.MapStageSubmitted;
import scala.Function1;
import scala.collection.immutable.BitSet$;

/**
 * Decides, once per shuffle and in the driver, which map partitions are computed, and puts Spark's PartitionPruningRDD
 * under the shuffle.
 *
 * <p>It decides when a job is submitted: then all that the job's result depends on is known, and Spark has not yet made the
 * stages from the RDDs that the shuffles name. So a stage has the kept partitions and no others: whatever happens to its tasks
 * and executors, none but those is ever computed.
 */
final class Thinning {
  /** The local property in which Spark's structured streaming names the query of a job. */
  private static final String STREAMING = "sql.streaming.queryId";

  /** That of Spark Streaming's batches. */
  private static final String BATCH = "spark.streaming.internal.batchTime";

  private static final String EXECUTION = "spark.sql.execution.id";

  private final Session session;
  private final SparkContext sc;

  Thinning(Session session, SparkContext sc) {
    this.session = session;
    this.sc = sc;
  }

  /** Fails, at the start of the driver, if this Spark does not have the private fields that are needed. */
  static void check() throws ReflectiveOperationException {
    Field rdd = rdd();
    if (!rdd.getType().equals(RDD.class)) {
      throw new NoSuchFieldException("ShuffleDependency._rdd is a " + rdd.getType().getName());
    }
    Submissions.field();
  }

  private static Field rdd() throws ReflectiveOperationException {
    Field f = ShuffleDependency.class.getDeclaredField("_rdd");
    f.setAccessible(true);
    return f;
  }

  /** A job is submitted. Any fault means that all that is not decided yet runs completely. */
  void submitted(Object event) {
    try {
      if (event instanceof JobSubmitted) {
        JobSubmitted job = (JobSubmitted) event;
        Plan plan = Plan.of(job.finalRDD(), session);
        String why = decide(plan, job.properties());
        session.began(new Session.Begun(job.jobId(), job.callSite().shortForm(), new ArrayList<>(plan.shuffles()), why));
      } else if (event instanceof MapStageSubmitted) {
        MapStageSubmitted job = (MapStageSubmitted) event;
        decide(Plan.of(job.dependency(), session), job.properties());
      }
    } catch (Exception | LinkageError | StackOverflowError e) {
      session.exactSoFar();
      session.trouble("a job runs completely: " + e);
      if (event instanceof JobSubmitted) {
        JobSubmitted job = (JobSubmitted) event;
        session.began(new Session.Begun(job.jobId(), job.callSite().shortForm(), new ArrayList<>(), String.valueOf(e.getMessage())));
      }
    }
  }

  /** Decides what is not decided yet and returns why the job is exact; "" where it is not, or nothing was to be dropped. */
  private String decide(Plan plan, Properties properties) throws ReflectiveOperationException {
    DropRatio ratio = ratio(properties);
    boolean wanted = (ratio.theta > 0 || session.settings.mayEnd()) && session.settings.refused.isEmpty() && session.settings.stages != Stages.NONE;
    String why = wanted || session.thins() ? unsafe(plan, properties) : null;
    synchronized (session) {
      session.cut(plan.cuts());
      Set<Integer> samples = new TreeSet<>(plan.shuffles());
      String exact = "";
      for (Plan.Stage s : plan.stages()) {
        Kept k = session.kept(s.dependency.shuffleId());
        if (k == null) {
          k = settle(s, ratio, wanted, why);
        }
        exact = exact.isEmpty() ? k.why() : exact;
        if (s.named) {
          samples.remove(k.shuffle());
        }
      }
      samples.removeIf(id -> session.kept(id) == null || session.kept(id).kept() == session.kept(id).total());
      if (why != null && !samples.isEmpty()) {
        session.trouble("a result is not exact although it should be (" + why + "): an earlier action thinned shuffles " + samples);
      }
      return exact;
    }
  }

  private Kept settle(Plan.Stage s, DropRatio ratio, boolean wanted, String plan) throws ReflectiveOperationException {
    int shuffle = s.dependency.shuffleId();
    int n = s.last.getNumPartitions();
    int k = Choice.count(n, ratio.theta);
    boolean candidate = wanted && (k < n || session.settings.mayEnd()) && (session.settings.stages == Stages.ALL || s.input() || s.checkpoint);
    String why = candidate ? unsafe(s, plan) : "";
    boolean may = candidate && why.isEmpty();
    if (k == n && !session.settings.asksBound()) {
      why = ""; // nobody asked for less
    }
    if (!why.isEmpty()) {
      session.exact(why);
    }
    if (may) {
      session.mayEnd(shuffle, s.dependency.partitioner().numPartitions());
    }
    Kept kept;
    if (k < n && may) {
      put(s.dependency, s.last, Choice.choose(n, k, ratio.seed, Choice.salt(s.input(), n, shuffle)));
      kept = new Kept(shuffle, n, k, ratio.theta, ratio.seed, s.input(), "");
    } else {
      kept = new Kept(shuffle, n, n, 0, ratio.seed, s.input(), why);
    }
    session.registered(kept, s.graph || s.shuffles.stream().anyMatch(session::graph));
    return kept;
  }

  /**
   * With a scheduler its word counts while it is fresh, and a job's own can only drop less. Without one the job's own is taken
   * before the conf's. A query of Spark SQL has the ratio with which it began.
   */
  private DropRatio ratio(Properties properties) {
    DropRatio r = session.ratio(System.nanoTime());
    String theta = own(properties, Settings.THETA);
    String seed = own(properties, Settings.SEED);
    try {
      double mine = theta == null ? r.theta : DropRatio.checked(Double.parseDouble(theta));
      r = new DropRatio(session.settings.url == null ? mine : Math.min(mine, r.theta), seed == null ? r.seed : Long.parseLong(seed));
    } catch (IllegalArgumentException e) {
      session.trouble("the job's " + Settings.THETA + "=" + theta + " or " + Settings.SEED + "=" + seed
          + " is invalid, it runs completely: " + e.getMessage());
      r = DropRatio.EXACT;
    }
    String execution = properties == null ? null : properties.getProperty(EXECUTION);
    return execution == null ? r : session.ofQuery(execution, r);
  }

  /** A property of the job; null where it repeats the conf's, which Spark SQL copies into its jobs. */
  private String own(Properties properties, String key) {
    String text = properties == null ? null : properties.getProperty(key);
    return text == null || text.equals(session.settings.configured(key)) ? null : text;
  }

  /** Why the whole job must be exact, in words; null where it need not. */
  private String unsafe(Plan plan, Properties properties) throws ReflectiveOperationException {
    if (properties != null && (properties.getProperty(STREAMING) != null || properties.getProperty(BATCH) != null)) {
      return "a streaming query: it would lose state permanently";
    }
    if (plan.joins() != null) {
      return plan.joins();
    }
    String execution = properties == null ? null : properties.getProperty(EXECUTION);
    if (execution != null) {
      return Query.unsafe(sc, Long.parseLong(execution));
    }
    return plan.sql() ? "the RDD of a DataFrame: its query is unknown" : null;
  }

  /** Why a drop would break the job rather than make its result coarser; "" where it would not. */
  private String unsafe(Plan.Stage s, String plan) {
    if (s.last.isBarrier()) {
      return "a barrier stage: its tasks wait for each other";
    }
    if (s.checkpoint) {
      return "it reads a checkpoint, which may be of a sample";
    }
    if (s.routing) {
      return "GraphX's routing table: it is joined with the edges by partition";
    }
    if (!s.input() && (s.graph || s.shuffles.stream().anyMatch(session::graph))) {
      return "inner stages behind GraphX, which fails without their partitions; those that read the input are";
    }
    if (((MapOutputTrackerMaster) org.apache.spark.SparkEnv.get().mapOutputTracker()).containsShuffle(s.dependency.shuffleId())
        || session.exactSoFar(s.dependency.shuffleId())) {
      return "its shuffle was begun before";
    }
    if (s.named && s.joins == null && !streaming(plan)) {
      return "";
    }
    if (plan != null) {
      return plan;
    }
    return s.cached ? "it reads a cached RDD" : "";
  }

  private static boolean streaming(String plan) {
    return plan != null && plan.startsWith("a streaming query");
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static void put(ShuffleDependency dependency, RDD rdd, java.util.BitSet kept) throws ReflectiveOperationException {
    // A set of Scala's is the function that tells what is in it, and executors, to which it travels, have its class.
    Function1 chosen = BitSet$.MODULE$.fromBitMask(kept.toLongArray());
    RDD thin = new PartitionPruningRDD(rdd, chosen, rdd.elementClassTag());
    label(thin, rdd);
    rdd().set(dependency, thin);
  }

  /** The stage goes on being named after the line of the job that made it. */
  private static void label(RDD<?> thin, RDD<?> rdd) {
    try {
      Field site = RDD.class.getDeclaredField("creationSite");
      site.setAccessible(true);
      site.set(thin, site.get(rdd));
    } catch (ReflectiveOperationException | RuntimeException e) {
      return; // only a label
    }
  }
}
