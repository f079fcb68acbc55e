package headroom.spark;

import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Spark's own sort shuffle, which in the driver thins the stages of the jobs that are submitted:
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
      Settings.hide(conf);
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

  /** Registers a shuffle. What its stage computes is decided when a job that needs it is submitted ({@link Thinning}). */
  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffle, ShuffleDependency<K, V, C> dependency) {
    ShuffleHandle handle = super.registerShuffle(shuffle, dependency);
    if (thins) {
      SparkContext sc = dependency.rdd().sparkContext();
      Session.of(sc).watch(sc, shuffle);
    }
    return handle;
  }
}
