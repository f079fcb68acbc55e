// Claims, on a real Spark: a stage whose bound allows it ends with the partitions that are done, those that wait are never
// computed and those that run are killed, and the action returns what is done; never with less than its floor; before the
// deadline nothing is given up; without a bound, or where a drop is unsafe, all is computed.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaFutureAction;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import scala.Tuple2;

@Timeout(120)
class EndingTest {
  private static final int N = 20;

  /** Executors of a local master are threads of this JVM. */
  private static final Set<Integer> COMPUTED = ConcurrentHashMap.newKeySet();

  /** Tasks that wait. */
  private static final AtomicInteger WAITING = new AtomicInteger();

  /** They do not heed an interrupt. */
  private static volatile boolean stubborn;

  private static volatile CountDownLatch hold = new CountDownLatch(0);

  private JavaSparkContext sc;

  private void start(String... pairs) {
    SparkConf conf = new SparkConf().setMaster("local[2,4]").setAppName("ending").set("spark.ui.enabled", "false")
        .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.shuffle.manager", HeadroomShuffleManager.class.getName()).set("spark.plugins", HeadroomPlugin.class.getName());
    for (int i = 0; i < pairs.length; i += 2) {
      conf.set(pairs[i], pairs[i + 1]);
    }
    sc = new JavaSparkContext(conf);
  }

  @BeforeEach
  void forget() {
    COMPUTED.clear();
    WAITING.set(0);
    stubborn = false;
    hold = new CountDownLatch(0);
  }

  @AfterEach
  void stop() {
    hold.countDown();
    sc.stop();
  }

  /** The numbers 0 to N - 1, one in each partition; those from {@code straggler} on wait until they are let go or killed. */
  private JavaPairRDD<Integer, Integer> count(int straggler) {
    return sc.parallelize(IntStream.range(0, N).boxed().collect(Collectors.toList()), N).mapToPair(i -> {
      if (i >= straggler) {
        straggle();
      }
      COMPUTED.add(i);
      return new Tuple2<>(i, 1);
    }).reduceByKey(Integer::sum, 3);
  }

  private static void straggle() throws InterruptedException {
    WAITING.incrementAndGet();
    boolean ignores = stubborn;
    for (;;) {
      try {
        hold.await();
        WAITING.decrementAndGet();
        return;
      } catch (InterruptedException e) {
        if (!ignores) {
          WAITING.decrementAndGet();
          throw e;
        }
      }
    }
  }

  @Test
  void anErrorBoundEndsTheStage() {
    start(Settings.ERROR, "25%");
    hold = new CountDownLatch(1);
    JavaPairRDD<Integer, Integer> counts = count(15);
    assertEquals(IntStream.range(0, 15).boxed().collect(Collectors.toSet()), new HashSet<>(counts.keys().collect()));
    assertEquals(COMPUTED, new HashSet<>(counts.keys().collect()), "a second action reads the same");
    Kept k = Headroom.kept(counts.rdd()).get(0);
    assertEquals("15 of 20", k.kept() + " of " + k.total());
    assertEquals(15, COMPUTED.size());
  }

  @Test
  void theFloorWinsOverTheDeadline() {
    start(Settings.DEADLINE, "1ms", Settings.MIN_TASKS, "75%");
    hold = new CountDownLatch(1);
    JavaFutureAction<List<Integer>> job = count(10).keys().collectAsync();
    await(() -> COMPUTED.size() == 10 && running() == 2);
    assertFalse(job.isDone(), "ten of twenty are not enough");
    hold.countDown();
    int kept = got(job).size();
    assertTrue(kept >= 15 && kept == Headroom.kept(sc).get(0).kept(), kept + " are done");
  }

  @Test
  void beforeTheDeadlineNothingIsGivenUp() {
    start(Settings.DEADLINE, "1h", Settings.MIN_TASKS, "10%");
    hold = new CountDownLatch(1);
    JavaFutureAction<List<Integer>> job = count(18).keys().collectAsync();
    await(() -> COMPUTED.size() == 18 && running() == 2);
    hold.countDown();
    assertEquals(N, got(job).size());
  }

  @Test
  void whoIgnoresTheKillIsNotWaitedFor() {
    start(Settings.ERROR, "5%");
    stubborn = true;
    hold = new CountDownLatch(1);
    assertEquals(19, count(19).keys().collect().size());
  }

  @Test
  void framesEndToo() {
    start(Settings.ERROR, "25%");
    hold = new CountDownLatch(1);
    SparkSession spark = new SparkSession(sc.sc());
    Dataset<Long> rows = spark.range(0, N, 1, N).map((MapFunction<Long, Long>) i -> {
      if (i >= 15) {
        hold.await();
      }
      return i;
    }, Encoders.LONG());
    assertEquals(15, rows.groupBy("value").count().collectAsList().size());
    SparkSession.clearActiveSession();
    SparkSession.clearDefaultSession();
  }

  @Test
  void aWrongBoundGivesNothingUp() {
    start(Settings.ERROR, "100%");
    assertEquals(N, count(N).keys().collect().size());
    assertTrue(Session.of(sc.sc()).trouble().contains("below 100%"), Session.of(sc.sc()).trouble());
  }

  @Test
  void theSchedulersAnswerEndsTheStage() throws Exception {
    try (FakeScheduler scheduler = new FakeScheduler()) {
      scheduler.reply(200, "{\"theta\":0,\"seed\":1,\"cancel\":false}");
      start(Settings.ADDRESS, scheduler.url(), Settings.JOB, "j1", Settings.RUN, "1", Settings.INTERVAL_MS, "50", Settings.ERROR, "90%");
      hold = new CountDownLatch(1);
      JavaFutureAction<List<Integer>> job = count(15).keys().collectAsync();
      await(() -> COMPUTED.size() == 15 && running() == 2);
      assertFalse(job.isDone(), "the scheduler has not said so");
      scheduler.reply(200, "{\"theta\":0,\"seed\":1,\"cancel\":false,\"end\":0.25}");
      assertEquals(15, got(job).size());
      JsonNode r;
      do {
        r = scheduler.reports.take();
      } while (r.get("shuffles").path(0).path("kept").asInt() != 15 || r.get("tasks_done").asInt() != 18);
      assertEquals("18 20 15", r.get("tasks_total") + " " + r.get("stages").get(0).get("partitions") + " " + r.get("stages").get(0).get("kept"));
    }
  }

  private static int running() {
    return WAITING.get();
  }

  private static <T> T got(JavaFutureAction<T> job) {
    try {
      return job.get();
    } catch (InterruptedException | ExecutionException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The class's time limit ends it. */
  private static void await(BooleanSupplier is) {
    while (!is.getAsBoolean()) {
      Thread.yield();
    }
  }
}
