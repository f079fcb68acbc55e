// Claims, on a real Spark: a thinned stage computes exactly the chosen partitions, has a task for each and none for the
// others, and the same ones when tasks fail or the whole stage runs again; RDD and DataFrame jobs; stages=input leaves
// inner stages alone; what joins several inputs, or reads what is cached or a checkpoint, is exact, and so is what streams; each action
// names its sample; where a drop is wrongly set or switched off all is computed.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.shuffle.MetadataFetchFailedException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.util.LongAccumulator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import scala.Tuple2;

/** One Spark at a time is all that a JVM bears. */
class ThinningTest {
  private static final int N = 20;

  private JavaSparkContext sc;

  private void start(String... pairs) {
    SparkConf conf = new SparkConf().setMaster("local[2,4]").setAppName("thinning").set("spark.ui.enabled", "false")
        .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.shuffle.manager", HeadroomShuffleManager.class.getName()).set("spark.plugins", HeadroomPlugin.class.getName());
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
  }

  /** The numbers 0 to N - 1, one in each partition. */
  private JavaRDD<Integer> numbers() {
    return sc.parallelize(IntStream.range(0, N).boxed().collect(Collectors.toList()), N);
  }

  private static JavaPairRDD<Integer, Integer> keyed(JavaRDD<Integer> numbers) {
    return numbers.mapToPair(i -> new Tuple2<>(i, 1)).reduceByKey(Integer::sum, 3);
  }

  private static BitSet set(JavaPairRDD<Integer, ?> rdd) {
    BitSet s = new BitSet();
    rdd.keys().collect().forEach(s::set);
    return s;
  }

  /** What the status tracker tells, it hears from Spark's listener bus, after an action has returned. */
  private void awaitListeners() {
    try {
      sc.sc().listenerBus().waitUntilEmpty();
    } catch (TimeoutException e) {
      throw new IllegalStateException(e);
    }
  }

  private static BitSet chosen(double theta, long seed) {
    return Choice.choose(N, Choice.count(N, theta), seed, Choice.salt(true, N, 0));
  }

  private static BitSet all() {
    BitSet s = new BitSet();
    s.set(0, N);
    return s;
  }

  @ParameterizedTest
  @CsvSource({"0,1", "0.2,1", "0.4,99", "0.9,-3", "1,1"})
  void theChosenAreComputedAndNoOthers(String theta, String seed) {
    start(Settings.THETA, theta, Settings.SEED, seed);
    LongAccumulator computed = sc.sc().longAccumulator();
    BitSet seen = set(keyed(numbers().map(i -> {
      computed.add(1);
      return i;
    })));
    BitSet expected = chosen(Double.parseDouble(theta), Long.parseLong(seed));
    assertEquals(expected, seen);
    assertEquals(expected.cardinality(), computed.value());
    Kept k = Headroom.kept(sc).get(0);
    assertEquals(N + " " + expected.cardinality() + " true", k.total() + " " + k.kept() + " " + k.input());
    awaitListeners();
    int[] tasks = sc.statusTracker().getJobIdsForGroup(null);
    assertEquals(expected.cardinality(),
        sc.statusTracker().getStageInfo(sc.statusTracker().getJobInfo(tasks[0]).stageIds()[0]).numTasks());
  }

  @Test
  void failedTasksChangeNothing() {
    start(Settings.THETA, "0.4");
    assertEquals(chosen(0.4, 1), set(keyed(numbers().map(i -> {
      if (TaskContext.get().attemptNumber() < 2) {
        throw new IllegalStateException("fails twice");
      }
      return i;
    }))));
  }

  @Test
  void aLostShuffleIsComputedFromTheSamePartitions() {
    start(Settings.THETA, "0.4");
    LongAccumulator computed = sc.sc().longAccumulator();
    JavaPairRDD<Integer, Integer> reduced = keyed(numbers().map(i -> {
      computed.add(1);
      return i;
    }));
    JavaPairRDD<Integer, Integer> loses = reduced.mapPartitionsToPair(it -> {
      if (TaskContext.get().stageAttemptNumber() == 0) {
        // As if the executors that held it were lost: local tasks see the driver's own tracker.
        ((org.apache.spark.MapOutputTrackerMaster) SparkEnv.get().mapOutputTracker()).unregisterAllMapAndMergeOutput(0);
        throw new MetadataFetchFailedException(0, 0, "lost");
      }
      return it;
    });
    assertEquals(chosen(0.4, 1), set(loses));
    assertEquals(2L * chosen(0.4, 1).cardinality(), computed.value());
  }

  @Test
  void aCogroupIsExactUnlessTheProgramNamesAnInput() {
    start(Settings.THETA, "0.4");
    assertEquals(all(), set(keyed(numbers()).join(keyed(numbers()))));
    assertEquals("several inputs: join", Headroom.actions(sc).get(0).exact());
    assertEquals(0, numbers().subtract(numbers()).count());
    assertEquals(N, keyed(numbers()).zip(keyed(numbers())).count());
    assertEquals(chosen(0.4, 1), set(keyed(Headroom.thin(numbers())).join(keyed(numbers()))));
    assertEquals("[true 20 of 20, true 12 of 20]", described(Headroom.actions(sc).get(3).kept()));
    sc.stop();
    start(Settings.THETA, "0.4", Settings.ERROR, "50%");
    assertEquals(0, numbers().subtract(numbers()).count(), "an early end is a drop too");
  }

  @Test
  void aCachedOrCheckpointedInputIsExact() {
    start(Settings.THETA, "0.5");
    assertEquals(all(), set(keyed(numbers().cache())));
    assertEquals("it reads a cached RDD", Headroom.actions(sc).get(0).exact());
    JavaPairRDD<Integer, Integer> r = keyed(numbers());
    for (int i = 0; i < 3; i++) {
      r = r.mapToPair(t -> t).reduceByKey(Integer::sum, 4 + i);
      r.rdd().localCheckpoint();
      assertEquals(N / 2, r.count());
    }
    assertEquals(2, Headroom.factor(Headroom.kept(r.mapToPair(t -> t).reduceByKey(Integer::sum, 2).rdd())), 1e-12);
    assertEquals("it reads a checkpoint, which may be of a sample", Headroom.kept(sc).get(Headroom.kept(sc).size() - 1).why());
  }

  @Test
  void eachActionNamesItsSample() {
    start(Settings.THETA, "0.5");
    keyed(numbers()).count();
    JavaPairRDD<Integer, Integer> sample = keyed(numbers());
    sample.count();
    numbers().count();
    sample.join(keyed(numbers())).count();
    List<Action> actions = Headroom.actions(sc);
    assertEquals("true false true", actions.get(1).thinned() + " " + actions.get(2).thinned() + " " + actions.get(3).thinned());
    assertTrue(actions.get(1).toString().matches("job 1 \\(count at .*\\) is a sample: 10 of 20 partitions of shuffle 1"), actions.get(1).toString());
    assertTrue(Session.of(sc.sc()).trouble().contains("not exact although it should be (several inputs: join)"), Session.of(sc.sc()).trouble());
  }

  @Test
  void aPlanThatIsTooLargeIsExact() {
    start(Settings.THETA, "0.5");
    JavaPairRDD<Integer, Integer> r = keyed(numbers());
    for (int i = 0; i < 100; i++) {
      r = r.mapToPair(t -> t).reduceByKey(Integer::sum, 3);
    }
    assertEquals(N / 2, r.count(), "100 shuffles");
    JavaRDD<Integer> long10000 = numbers();
    for (int i = 0; i < 10_000; i++) {
      long10000 = long10000.map(x -> x);
    }
    Session session = Session.of(sc.sc());
    JavaRDD<Integer> deep = long10000; // Spark itself makes no shuffle of it: it asks for a barrier by recursion
    assertDoesNotThrow(() -> Plan.of(deep.rdd(), session));
    JavaRDD<Integer> one = sc.parallelize(Collections.singletonList(1), 1);
    JavaRDD<Integer> wide = sc.union(Collections.nCopies(Plan.STEPS_MAX, one).toArray(new JavaRDD[0]));
    assertThrows(IllegalArgumentException.class, () -> Plan.of(wide.rdd(), session));
    session.exactSoFar();
    assertEquals(all(), set(deepest()));
  }

  /** Its shuffle was registered before a plan was found too large. */
  private JavaPairRDD<Integer, Integer> deepest() {
    JavaPairRDD<Integer, Integer> r = keyed(numbers());
    r.rdd().dependencies();
    Session.of(sc.sc()).exactSoFar();
    return r;
  }

  @Test
  void innerStagesAreLeftAloneUnlessAllAreThinned() {
    start(Settings.THETA, "0.5");
    JavaPairRDD<Integer, Integer> twice = keyed(numbers()).mapToPair(t -> new Tuple2<>(t._1 + 100, t._2)).reduceByKey(Integer::sum, 2);
    assertEquals(N / 2, twice.count());
    assertEquals("[true 10 of 20, false 3 of 3]", described(Headroom.kept(twice.rdd())));
    sc.stop();
    start(Settings.THETA, "0.5", Settings.STAGES, "all");
    twice = keyed(numbers()).mapToPair(t -> new Tuple2<>(t._1 + 100, t._2)).reduceByKey(Integer::sum, 2);
    assertTrue(twice.count() < N / 2);
    assertEquals("[true 10 of 20, false 2 of 3]", described(Headroom.kept(twice.rdd())));
    assertEquals(3, Headroom.factor(Headroom.kept(twice.rdd())), 1e-12);
  }

  private static String described(List<Kept> kept) {
    List<String> words = new ArrayList<>();
    kept.forEach(k -> words.add(k.input() + " " + k.kept() + " of " + k.total()));
    Collections.sort(words, Collections.reverseOrder());
    return words.toString();
  }

  @ParameterizedTest
  @CsvSource({
    Settings.THETA + ",nonsense", Settings.THETA + ",NaN", Settings.THETA + ",1.5", Settings.THETA + ",-0.5",
    Settings.STAGES + ",none", Settings.STAGES + ",some", Settings.ADDRESS + ",nonsense"
  })
  void whatIsRefusedOrSwitchedOffIsExact(String key, String value) {
    start(Settings.THETA, "0.5", key, value);
    assertEquals(all(), set(keyed(numbers())));
  }

  @Test
  void aBarrierIsExact() {
    start(Settings.THETA, "0.5");
    JavaRDD<Integer> two = sc.parallelize(java.util.Arrays.asList(0, 1), 2);
    scala.reflect.ClassTag<Integer> tag = two.classTag();
    JavaRDD<Integer> barrier = two.rdd().barrier().mapPartitions(new Same(), false, tag).toJavaRDD();
    assertEquals(2, keyed(barrier).count());
    assertTrue(Session.of(sc.sc()).exact().contains("barrier"));
  }

  private static final class Same extends scala.runtime.AbstractFunction1<scala.collection.Iterator<Integer>, scala.collection.Iterator<Integer>>
      implements java.io.Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public scala.collection.Iterator<Integer> apply(scala.collection.Iterator<Integer> it) {
      return it;
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"sql.streaming.queryId", "spark.streaming.internal.batchTime"})
  void streamingIsExact(String property) {
    start(Settings.THETA, "0.5");
    sc.setLocalProperty(property, "1");
    assertEquals(all(), set(keyed(numbers())));
    assertEquals(all(), set(keyed(Headroom.thin(numbers()))), "whatever is named");
    sc.setLocalProperty(property, null);
    assertEquals(chosen(0.5, 1), set(keyed(numbers())));
  }

  @Test
  void aJobsOwnWordIsTakenFirst() {
    start(Settings.THETA, "0.5");
    sc.setLocalProperty(Settings.THETA, "0.2");
    sc.setLocalProperty(Settings.SEED, "8");
    assertEquals(chosen(0.2, 8), set(keyed(numbers())));
    sc.setLocalProperty(Settings.THETA, "2");
    assertEquals(all(), set(keyed(numbers())));
  }

  @ParameterizedTest
  @ValueSource(strings = {"true", "false"})
  void dataFrames(String adaptive) {
    start(Settings.THETA, "0.4", "spark.sql.adaptive.enabled", adaptive, "spark.sql.shuffle.partitions", "3");
    SparkSession spark = SparkSession.builder().sparkContext(sc.sc()).getOrCreate();
    TreeSet<Long> seen = new TreeSet<>();
    // The cast hides from SQL that a range is spread by its numbers already, which would save the shuffle.
    for (Row r : spark.range(0, N, 1, N).selectExpr("cast(id as bigint) * 1 as id").groupBy(functions.col("id")).count().collectAsList()) {
      seen.add(r.getLong(0));
    }
    assertEquals(chosen(0.4, 1).stream().mapToObj(i -> (long) i).collect(Collectors.toSet()), seen);
    assertEquals("[true 12 of 20]", described(Headroom.kept(sc)));
    // A count is an aggregation with a shuffle of its own; a plain collect has none and is exact.
    assertEquals(12, spark.range(0, N, 1, N).count());
    assertEquals(N, spark.range(0, N, 1, N).collectAsList().size());
  }

  @Test
  void executorsAreToldNothingOfUs() {
    start(Settings.THETA, "0.4");
    assertEquals("sort", sc.sc().conf().get("spark.shuffle.manager"));
    assertFalse(sc.sc().conf().contains("spark.plugins"));
  }

  @Test
  void withoutOurShuffleManagerNothingIsKept() {
    start(Settings.THETA, "0.4", "spark.shuffle.manager", "sort");
    assertEquals(all(), set(keyed(numbers())));
    assertEquals("[]", Headroom.kept(sc).toString());
  }
}
