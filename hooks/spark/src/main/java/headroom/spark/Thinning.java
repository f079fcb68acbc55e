package headroom.spark;

import java.lang.reflect.Field;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.PartitionPruningRDD;
import org.apache.spark.rdd.RDD;
import scala.Function1;
import scala.collection.immutable.BitSet$;

/**
 * Settles, once per shuffle and in the driver, which map partitions are computed, and puts Spark's PartitionPruningRDD
 * under the shuffle.
 *
 * <p>Spark makes the stage from the RDD that the shuffle names, after it has registered the shuffle. So the stage has
 * the kept partitions and no others: whatever happens to its tasks and executors, none but those is ever computed.
 */
final class Thinning {
  /** The local property in which Spark's structured streaming tells the query of a job. */
  private static final String STREAMING = "sql.streaming.queryId";

  private Thinning() {}

  /** Tells, at the start of the driver, whether this Spark has the one private field that is needed. */
  static void check() throws ReflectiveOperationException {
    Field rdd = rdd();
    if (!rdd.getType().equals(RDD.class)) {
      throw new NoSuchFieldException("ShuffleDependency._rdd is a " + rdd.getType().getName());
    }
  }

  private static Field rdd() throws ReflectiveOperationException {
    Field f = ShuffleDependency.class.getDeclaredField("_rdd");
    f.setAccessible(true);
    return f;
  }

  static void apply(Session session, int shuffle, ShuffleDependency<?, ?, ?> dependency) throws ReflectiveOperationException {
    RDD<?> rdd = dependency.rdd();
    int n = rdd.getNumPartitions();
    Lineage lineage = Lineage.of(rdd, session::graph);
    DropRatio ratio = ratio(session, rdd.sparkContext());
    int k = Choice.count(n, ratio.theta);
    boolean may = (k < n || session.settings.mayEnd()) && mayDrop(session, rdd, lineage);
    if (may) {
      session.mayEnd(shuffle, dependency.partitioner().numPartitions());
    }
    if (k < n && may) {
      put(dependency, rdd, Choice.choose(n, k, ratio.seed, Choice.salt(lineage.input, n, shuffle)));
      session.registered(new Kept(shuffle, n, k, ratio.theta, ratio.seed, lineage.input), lineage.graph);
    } else {
      session.registered(new Kept(shuffle, n, n, 0, ratio.seed, lineage.input), lineage.graph);
    }
  }

  /** The job's own word is taken before the scheduler's: it is for programs that measure several ratios. */
  private static DropRatio ratio(Session session, SparkContext sc) {
    DropRatio r = session.ratio(System.nanoTime());
    String theta = sc.getLocalProperty(Settings.THETA);
    String seed = sc.getLocalProperty(Settings.SEED);
    try {
      return new DropRatio(theta == null ? r.theta : DropRatio.checked(Double.parseDouble(theta)),
          seed == null ? r.seed : Long.parseLong(seed));
    } catch (IllegalArgumentException e) {
      session.trouble("the job's " + Settings.THETA + "=" + theta + " or " + Settings.SEED + "=" + seed
          + " is invalid, it runs completely: " + e.getMessage());
      return DropRatio.EXACT;
    }
  }

  private static boolean mayDrop(Session session, RDD<?> rdd, Lineage lineage) {
    Stages stages = session.settings.stages;
    if (!session.settings.refused.isEmpty() || stages == Stages.NONE || stages == Stages.INPUT && !lineage.input) {
      return false;
    }
    String why = unsafe(rdd, lineage);
    if (why != null) {
      session.trouble("no partitions dropped: " + why);
    }
    return why == null;
  }

  /** Why a drop would break the job rather than make its result coarser; null where it would not. */
  private static String unsafe(RDD<?> rdd, Lineage lineage) {
    if (rdd.isBarrier()) {
      return "a barrier stage: its tasks wait for each other";
    }
    if (rdd.sparkContext().getLocalProperty(STREAMING) != null) {
      return "a streaming query: it would lose state permanently";
    }
    if (lineage.routing) {
      return "GraphX's routing table: it is joined with the edges by partition";
    }
    if (lineage.graph && !lineage.input) {
      return "inner stages behind GraphX, which fails without their partitions; those that read the input are";
    }
    return null;
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
