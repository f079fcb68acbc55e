package headroom.spark.pigeon;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExternalClusterManager;
import org.apache.spark.scheduler.SchedulerBackend;
import org.apache.spark.scheduler.TaskScheduler;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend;

/** Found by Spark among the services of the class path for masters that begin with pigeon:// or spark-pigeon://. */
public final class PigeonClusterManager implements ExternalClusterManager {
  /** Called by Spark. */
  public PigeonClusterManager() {}

  @Override
  public boolean canCreate(String master) {
    return Options.names(master);
  }

  @Override
  public TaskScheduler createTaskScheduler(SparkContext sc, String master) {
    Options options = Options.of(master, key -> sc.conf().get(key, null));
    // Waiting for a node that a task would rather have is the opposite of taking the slot that was granted.
    sc.conf().setIfMissing("spark.locality.wait", "0s");
    return new PigeonScheduler(sc, options);
  }

  @Override
  public SchedulerBackend createSchedulerBackend(SparkContext sc, String master, TaskScheduler scheduler) {
    return new StandaloneSchedulerBackend((TaskSchedulerImpl) scheduler, sc, ((PigeonScheduler) scheduler).options().executors);
  }

  @Override
  public void initialize(TaskScheduler scheduler, SchedulerBackend backend) {
    ((TaskSchedulerImpl) scheduler).initialize(backend);
  }
}
