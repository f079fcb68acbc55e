package headroom.spark;

import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Spark's own sort shuffle, which in the driver thins stages as their shuffles are registered:
 * {@code spark.shuffle.manager=headroom.spark.HeadroomShuffleManager}.
 *
 * <p>It is a subclass because Spark SQL asks for the class and has rows copied for any other manager. Executors are
 * told to use plain sort, which is the same to them.
 */
public class HeadroomShuffleManager extends SortShuffleManager {
  private static final Logger LOG = LoggerFactory.getLogger(HeadroomShuffleManager.class);

  private final boolean thins;

  /**
   * Called by Spark.
   *
   * @param conf that of the process, which executors get from the driver
   * @param isDriver whether this process is the driver
   */
  public HeadroomShuffleManager(SparkConf conf, boolean isDriver) {
    super(conf);
    if (isDriver) {
      conf.set("spark.shuffle.manager", "sort");
    }
    this.thins = isDriver && possible();
  }

  private static boolean possible() {
    try {
      Thinning.check();
      return true;
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      LOG.warn("Headroom cannot drop partitions with this Spark; all stages run completely", e);
      return false;
    }
  }

  /** Registers a shuffle and settles what its stage computes. Any fault in the latter means all of it. */
  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffle, ShuffleDependency<K, V, C> dependency) {
    ShuffleHandle handle = super.registerShuffle(shuffle, dependency);
    if (thins) {
      Session session = Session.of(dependency.rdd().sparkContext());
      try {
        Thinning.apply(session, shuffle, dependency);
      } catch (Exception | LinkageError | StackOverflowError e) {
        session.trouble("shuffle " + shuffle + " runs completely: " + e);
      }
    }
    return handle;
  }
}
