// Claims, on a real Spark: the first report is answered before the first job; reports tell stages, tasks and shuffles as
// docs/hooks.md says, the last one that it is the last; a live theta holds from the next action on; a cancel fails the
// job; a scheduler that refuses costs nothing but a line in the log.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.Arrays;
import java.util.concurrent.ExecutionException;
import java.util.function.Predicate;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import scala.Tuple2;

class HeadroomPluginTest {
  private FakeScheduler scheduler;
  private JavaSparkContext sc;

  @BeforeEach
  void listen() throws IOException {
    scheduler = new FakeScheduler();
  }

  private void start(String... pairs) {
    SparkConf conf = new SparkConf().setMaster("local[2]").setAppName("plugin").set("spark.ui.enabled", "false")
        .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.shuffle.manager", HeadroomShuffleManager.class.getName()).set("spark.plugins", HeadroomPlugin.class.getName())
        .set(Settings.ADDRESS, scheduler.url()).set(Settings.JOB, "j17").set(Settings.RUN, "2").set(Settings.TOKEN, "secret")
        .set(Settings.INTERVAL_MS, "50").set(Settings.TIMEOUT_MS, "10000");
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(pairs[i], pairs[i + 1]);
    }
    sc = new JavaSparkContext(conf);
  }

  @AfterEach
  void stop() {
    sc.stop();
    scheduler.close();
  }

  private long count(int partitions) {
    return sc.parallelize(Arrays.asList(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), partitions).mapToPair(i -> new Tuple2<>(i, 1))
        .reduceByKey(Integer::sum, 3).count();
  }

  /** The next report that shows it. Without one the test's own time limit speaks. */
  private JsonNode report(Predicate<JsonNode> shows) throws InterruptedException {
    for (;;) {
      JsonNode r = scheduler.reports.take();
      if (shows.test(r)) {
        return r;
      }
    }
  }

  @Test
  void reportsTellStagesTasksAndShuffles() throws Exception {
    scheduler.reply(200, "{\"theta\":0.2,\"seed\":42,\"cancel\":false}");
    start();
    JsonNode first = scheduler.reports.take();
    assertEquals("j17 2 1 false 0", first.get("job").asText() + " " + first.get("run") + " " + first.get("sequence") + " "
        + first.get("ended") + " " + first.get("tasks_total"));
    assertEquals(sc.sc().applicationId(), first.get("app").asText());
    assertEquals(8, count(10));
    JsonNode r = report(x -> x.get("tasks_done").asInt() == 11);
    assertEquals(11, r.get("tasks_total").asInt());
    JsonNode map = r.get("stages").get(0);
    JsonNode result = r.get("stages").get(1);
    assertEquals("map 10 8 0 8 0 0 true", told(map));
    assertEquals("result 3 3 -1 3 0 0 true", told(result));
    assertEquals("[{\"id\":0,\"total\":10,\"kept\":8,\"theta\":0.2,\"seed\":42,\"input\":true}]", r.get("shuffles").toString());
    assertEquals("", r.get("trouble").asText());
    sc.stop();
    assertTrue(report(x -> x.get("ended").asBoolean()).get("sequence").asInt() > 1);
    assertEquals("POST /v1/spark/progress Bearer secret", scheduler.requests.take());
  }

  private static String told(JsonNode s) {
    return s.get("kind").asText() + " " + s.get("partitions") + " " + s.get("kept") + " " + s.get("shuffle") + " " + s.get("done") + " "
        + s.get("running") + " " + s.get("failed") + " " + s.get("begun");
  }

  @Test
  void aLiveThetaHoldsFromTheNextActionOn() throws Exception {
    start();
    assertEquals(10, count(10));
    scheduler.reply(200, "{\"theta\":0.5,\"seed\":1,\"cancel\":false}");
    answered();
    assertEquals(5, count(10));
    scheduler.reply(200, "{\"theta\":7,\"seed\":1,\"cancel\":false}");
    answered();
    assertEquals(5, count(10), "what is no answer changes nothing yet");
  }

  /** One report is under way at most, so the third from now has been answered by what is set now, and acted upon. */
  private void answered() throws InterruptedException {
    scheduler.reports.clear();
    for (int i = 0; i < 3; i++) {
      scheduler.reports.take();
    }
  }

  @Test
  void aCancelFailsTheJob() {
    start();
    JavaFutureAction<Void> job = sc.parallelize(Arrays.asList(1, 2), 2).foreachAsync(i -> {
      for (;;) {
        Thread.sleep(1); // until it is cancelled
      }
    });
    scheduler.reply(200, "{\"theta\":0,\"seed\":1,\"cancel\":true}");
    ExecutionException e = assertThrows(ExecutionException.class, job::get);
    assertTrue(e.getCause() instanceof SparkException && e.getCause().getMessage().contains("cancel"), e.toString());
  }

  @Test
  void aRefusedDeadlineEndsTheDriverOfWhoWantsThat() {
    scheduler.reply(200, "{\"theta\":0,\"seed\":1,\"cancel\":false,\"refused\":\"deadline 10m: 8 slots are needed, 3 are free\"}");
    start();
    assertEquals(10, count(10), "its owner has not asked to be refused");
    sc.stop();
    Exception e = assertThrows(IllegalStateException.class, () -> start(Settings.REFUSE, "true"));
    assertTrue(e.getMessage().contains("8 slots are needed"), e.toString());
  }

  @Test
  void aSchedulerThatRefusesCostsNothing() {
    scheduler.reply(404, "{}");
    start();
    assertEquals(10, count(10));
    assertTrue(Session.of(sc.sc()).trouble().contains("404"), Session.of(sc.sc()).trouble());
  }
}
