package headroom.apps.spark;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * Counts in rounds, each an action of its own with a shuffle, until a file is there. What is looked at is how it runs:
 * its tasks cost nothing but time.
 */
public final class Rounds {
  private static final int REDUCES = 2;
  private static final long PAUSE_MS = 500;

  private Rounds() {}

  /**
   * Counts.
   *
   * @param args the file that ends it, the map tasks of a round, and the milliseconds that each takes
   * @throws Exception what Spark throws
   */
  public static void main(String[] args) throws Exception {
    if (args.length != 3) {
      throw new IllegalArgumentException("usage: Rounds STOP TASKS MILLISECONDS");
    }
    Path stop = Paths.get(args[0]);
    int tasks = Integer.parseInt(args[1]);
    long each = Long.parseLong(args[2]);
    List<Integer> numbers = new ArrayList<>();
    for (int i = 0; i < tasks; i++) {
      numbers.add(i);
    }
    JavaSparkContext sc = new JavaSparkContext(new SparkConf().setIfMissing("spark.app.name", "rounds"));
    try {
      while (!Files.exists(stop)) {
        sc.parallelize(numbers, tasks).mapPartitionsToPair(part -> counted(part, each)).reduceByKey(Integer::sum, REDUCES).collect();
        Thread.sleep(PAUSE_MS);
      }
    } finally {
      sc.stop();
    }
  }

  private static Iterator<Tuple2<Integer, Integer>> counted(Iterator<Integer> part, long each) throws InterruptedException {
    Thread.sleep(each);
    return Collections.singletonList(new Tuple2<>(part.next() % REDUCES, 1)).iterator();
  }
}
