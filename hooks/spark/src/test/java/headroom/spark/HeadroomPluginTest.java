// Claims, on a real Spark: the first report is answered before the first job; reports tell stages, tasks and shuffles as
// docs/hooks.md says, the last one that it is the last; a live theta holds from the next action on; a cancel fails the
// job; one ratio holds for RDDs and SQL, and after a scheduler's silence all is exact, whatever it answers instead of an answer; a scheduler that refuses costs nothing but a line in the log.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkException;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEnvironmentUpdate;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
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
    SparkSession.clearActiveSession();
    SparkSession.clearDefaultSession();
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
    assertEquals("[{\"id\":0,\"total\":10,\"kept\":8,\"theta\":0.2,\"seed\":42,\"input\":true,\"why\":\"\"}]", r.get("shuffles").toString());
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

  @Test
  void sparksOwnPageHasALine() throws Exception {
    BlockingQueue<String> shown = new LinkedBlockingQueue<>();
    start("spark.plugins", ""); // which would show lines of its own
    Session session = Session.of(sc.sc());
    session.answered(new DropRatio(0.5, 1), 0, "", System.nanoTime());
    sc.sc().addSparkListener(new SparkListener() {
      @Override
      public void onEnvironmentUpdate(SparkListenerEnvironmentUpdate e) {
        shown.add(sc.getConf().get(Page.KEY, ""));
      }
    });
    Page page = new Page(sc.sc(), session);
    count(10);
    Answer a = Answer.parse("{\"theta\":0.5,\"seed\":1,\"cancel\":false,\"executors\":3}".getBytes(StandardCharsets.UTF_8));
    page.show(a, 0);
    String line = shown.take();
    assertTrue(line.matches("capped at 3 executors since .*Z; drop ratio 0.5; 5 of 10 map partitions dropped"), line);
    session.answered(new DropRatio(0.5, 1), 0, "", System.nanoTime());
    count(10);
    page.show(a, 1);
    page.show(a, Page.PAUSE_NANOS);
    assertTrue(shown.take().contains("10 of 20 map partitions dropped"), "not before its pause is over");
  }

  private long sql(boolean adaptive) {
    SparkSession spark = SparkSession.builder().sparkContext(sc.sc()).getOrCreate();
    spark.conf().set("spark.sql.adaptive.enabled", adaptive);
    return spark.range(0, 10, 1, 10).count();
  }

  private String all() {
    return count(10) + " " + sql(true) + " " + sql(false);
  }

  @ParameterizedTest
  @ValueSource(strings = {"{\"theta\":0.5,\"se", "[]", "{\"theta\":0.5,\"seed\":1,\"cancel\":\"no\"}", "", "large", "late"})
  void oneRatioHoldsForAllJobsAndABadAnswerIsNone(String bad) throws Exception {
    scheduler.reply(200, "{\"theta\":0.5,\"seed\":1,\"cancel\":false}");
    start(Settings.THETA, "0.2", Settings.TIMEOUT_MS, "1000");
    assertEquals("5 5 5", all(), "the scheduler's, not the conf's");
    sc.setLocalProperty(Settings.THETA, "0.9");
    assertEquals("5 5 5", all(), "a job cannot drop more than the scheduler permits");
    sc.setLocalProperty(Settings.THETA, "0");
    assertEquals("10 10 10", all(), "but less");
    sc.setLocalProperty(Settings.THETA, null);
    String large = "{\"theta\":0.5,\"seed\":1,\"cancel\":false,\"x\":\"" + new String(new char[2 << 20]).replace('\0', 'x') + "\"}";
    scheduler.reply(e -> {
      if (bad.equals("late")) {
        LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(1500));
      }
      FakeScheduler.send(e, 200, bad.equals("large") || bad.equals("late") ? large : bad);
    });
    answered();
    Session session = Session.of(sc.sc());
    assertEquals("5 5 5", all(), "its last word holds for a while");
    session.answered(new DropRatio(0.5, 1), 0, "", System.nanoTime() - Session.ANSWER_HOLDS_NANOS - 1);
    assertEquals("10 10 10", all());
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
