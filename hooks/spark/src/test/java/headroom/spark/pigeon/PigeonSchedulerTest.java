// Claims: an application without jobs outlives a time without masters that is longer than its patience.
package headroom.spark.pigeon;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;

import java.util.Collections;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.Test;

class PigeonSchedulerTest {
  @Test
  void idleWithoutMasters() {
    SparkConf conf = new SparkConf().setMaster("local[1]").setAppName("idle").set("spark.ui.enabled", "false")
        .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1");
    try (JavaSparkContext sc = new JavaSparkContext(conf)) {
      Options options = Options.of("pigeon://127.0.0.1:1", Collections.singletonMap(Options.EXECUTORS, "spark://127.0.0.1:2")::get);
      PigeonScheduler scheduler = new PigeonScheduler(sc.sc(), options);
      try {
        assertDoesNotThrow(scheduler::look);
      } finally {
        scheduler.stop(0);
      }
    }
  }
}
