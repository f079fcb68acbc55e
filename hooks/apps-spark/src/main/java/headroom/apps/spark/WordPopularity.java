package headroom.apps.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import headroom.spark.Scaling;
import java.io.Serializable;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * The most frequent words of StackExchange's posts: {@code WordPopularity IN PARTITIONS [TOP [REDUCES [SLOW]]]}.
 *
 * <p>With dropped partitions the counts are scaled up, each with its interval of 95 %: every partition tells its count
 * of a word and the square of it.
 */
public final class WordPopularity {
  private static final double CONFIDENCE = 0.95;

  private WordPopularity() {}

  /**
   * Counts and prints.
   *
   * @param args the input (a file or folder that all executors see), in how many partitions it is read at least, how
   *     many words are printed (100), the tasks of the second stage (10), and how slow attempts of tasks are ({@link Slow#times})
   * @throws Exception what Spark throws
   */
  public static void main(String[] args) throws Exception {
    if (args.length < 2) {
      throw new IllegalArgumentException("usage: WordPopularity IN PARTITIONS [TOP [REDUCES [SLOW]]]");
    }
    int top = args.length > 2 ? Integer.parseInt(args[2]) : 100;
    int reduces = args.length > 3 ? Integer.parseInt(args[3]) : 10;
    String slow = args.length > 4 ? args[4] : "";
    JavaSparkContext sc = new JavaSparkContext(new org.apache.spark.SparkConf().setIfMissing("spark.app.name", "word popularity"));
    try {
      System.out.println(run(sc.textFile(args[0], Integer.parseInt(args[1])), top, reduces, slow));
    } finally {
      sc.stop();
    }
  }

  static String run(JavaRDD<String> posts, int top, int reduces, String slow) throws Exception {
    long begun = System.nanoTime();
    JavaPairRDD<String, Tally> words = posts.mapPartitionsToPair(rows -> count(Slow.rows(rows, slow))).reduceByKey(Tally::plus, reduces);
    List<Tuple2<String, Tally>> first = words.takeOrdered(top, new ByCount());
    Sample sample = Sample.of(words.rdd(), posts.getNumPartitions());
    ObjectNode o = Result.of("words");
    sample.into(o);
    for (Tuple2<String, Tally> w : first) {
      ObjectNode word = o.withArray("words").addObject().put("word", w._1);
      Result.put(word, "count", Scaling.count(w._2.sum, w._2.squares, sample.kept, sample.total, CONFIDENCE));
    }
    return Result.line(o, begun);
  }

  private static Iterator<Tuple2<String, Tally>> count(Iterator<String> rows) {
    Map<String, long[]> counts = new HashMap<>();
    while (rows.hasNext()) {
      Posts.words(rows.next(), w -> counts.computeIfAbsent(w, x -> new long[1])[0]++);
    }
    return counts.entrySet().stream().map(e -> new Tuple2<>(e.getKey(), Tally.of(e.getValue()[0]))).iterator();
  }

  /** The most frequent first, then by the alphabet, so that one input has one answer. */
  private static final class ByCount implements Comparator<Tuple2<String, Tally>>, Serializable {
    private static final long serialVersionUID = 1;

    @Override
    public int compare(Tuple2<String, Tally> a, Tuple2<String, Tally> b) {
      int c = Double.compare(b._2.sum, a._2.sum);
      return c != 0 ? c : a._1.compareTo(b._1);
    }
  }
}
