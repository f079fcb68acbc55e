package headroom.apps.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.graphx.Edge;
import org.apache.spark.graphx.Graph;
import org.apache.spark.graphx.lib.PageRank;
import org.apache.spark.mllib.classification.NaiveBayes;
import org.apache.spark.mllib.classification.SVMWithSGD;
import org.apache.spark.mllib.linalg.Vectors;
import org.apache.spark.mllib.regression.LabeledPoint;
import org.apache.spark.mllib.tree.RandomForest;
import org.apache.spark.storage.StorageLevel;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Programs whose scale-out is measured: {@code Scale PROGRAM PARTITIONS ROWS}. PROGRAM is bayes, forest, svm (MLlib) or rank
 * (PageRank of GraphX). Each partition makes its own rows out of its number, so that the work of a partition is the same
 * whatever their count; every pass makes them again, so that memory does not decide.
 */
public final class Scale {
  private static final int FEATURES = 40;
  private static final int CLASSES = 5;
  private static final int LEVELS = 8;
  private static final int ROUNDS = 5;
  private static final int VERTICES_PER_PARTITION = 2000;

  private Scale() {}

  /**
   * Runs one program and prints what it found.
   *
   * @param args the program, in how many partitions, and how many rows (rank: edges) a partition has
   * @throws Exception what Spark throws
   */
  public static void main(String[] args) throws Exception {
    if (args.length != 3) {
      throw new IllegalArgumentException("usage: Scale bayes|forest|svm|rank PARTITIONS ROWS");
    }
    JavaSparkContext sc = new JavaSparkContext(new SparkConf().setIfMissing("spark.app.name", "scale"));
    try {
      System.out.println(run(sc, args[0], Integer.parseInt(args[1]), Integer.parseInt(args[2])));
    } finally {
      sc.stop();
    }
  }

  static String run(JavaSparkContext sc, String program, int partitions, int rows) throws Exception {
    long begun = System.nanoTime();
    ObjectNode o = Result.of(program);
    JavaRDD<Integer> numbers = sc.parallelize(IntStream.range(0, partitions).boxed().collect(Collectors.toList()), partitions);
    switch (program) {
      case "bayes":
        o.put("prior", NaiveBayes.train(points(numbers, rows, CLASSES).rdd(), 1).pi()[0]);
        break;
      case "forest":
        o.put("nodes", forest(points(numbers, rows, 2)));
        break;
      case "svm":
        o.put("intercept", SVMWithSGD.train(points(numbers, rows, 2).rdd(), ROUNDS, 1, 0.01).weights().apply(0));
        break;
      case "rank":
        o.put("ranks", ranks(numbers, partitions, rows));
        break;
      default:
        throw new IllegalArgumentException("program " + program + " is none of bayes, forest, svm, rank");
    }
    return Result.line(o, begun);
  }

  private static JavaRDD<LabeledPoint> points(JavaRDD<Integer> numbers, int rows, int classes) {
    return numbers.flatMap(number -> points(number, rows, classes));
  }

  /** The points of a partition: every class has its own mean of every feature, which are counts. */
  static Iterator<LabeledPoint> points(int number, int rows, int classes) {
    Random random = new Random(number);
    return IntStream.range(0, rows).mapToObj(row -> {
      int label = random.nextInt(classes);
      double[] features = new double[FEATURES];
      for (int i = 0; i < FEATURES; i++) {
        features[i] = (random.nextInt(LEVELS) + (label + i) % classes) % LEVELS;
      }
      return new LabeledPoint(label, Vectors.dense(features));
    }).iterator();
  }

  private static double forest(JavaRDD<LabeledPoint> points) {
    int trees = 4;
    int depth = 4;
    int bins = LEVELS;
    Map<Integer, Integer> categories = new HashMap<>();
    return RandomForest.trainClassifier(points, 2, categories, trees, "auto", "gini", depth, bins, 1).totalNumNodes();
  }

  private static double ranks(JavaRDD<Integer> numbers, int partitions, int rows) {
    long vertices = (long) partitions * VERTICES_PER_PARTITION;
    JavaRDD<Edge<Object>> edges = numbers.flatMap(number -> edges(number, rows, vertices).iterator());
    StorageLevel memory = StorageLevel.MEMORY_ONLY();
    Graph<Object, Object> graph = Graph.fromEdges(edges.rdd(), 1, memory, memory, tag(Object.class), tag(Object.class));
    return PageRank.run(graph, ROUNDS, 0.15, tag(Object.class), tag(Object.class)).vertices().toJavaRDD().mapToDouble(v -> ((Number) v._2).doubleValue()).sum();
  }

  private static List<Edge<Object>> edges(int number, int rows, long vertices) {
    Random random = new Random(number);
    List<Edge<Object>> found = new ArrayList<>(rows);
    for (int i = 0; i < rows; i++) {
      found.add(new Edge<>((long) (random.nextDouble() * vertices), (long) (random.nextDouble() * random.nextDouble() * vertices), 1));
    }
    return found;
  }

  private static <T> ClassTag<T> tag(Class<T> type) {
    return ClassTag$.MODULE$.apply(type);
  }
}
