package headroom.apps.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import headroom.spark.Estimate;
import headroom.spark.Headroom;
import headroom.spark.Scaling;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.graphx.Graph;
import org.apache.spark.graphx.GraphLoader;
import org.apache.spark.graphx.PartitionStrategy;
import org.apache.spark.graphx.lib.TriangleCount;
import org.apache.spark.storage.StorageLevel;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * The triangles of a graph, by GraphX: {@code Triangles IN PARTITIONS}. IN is an edge list, two numbers of vertices per
 * line, in random order: then a dropped partition takes edges with no regard to their triangles.
 *
 * <p>GraphX can only be thinned where it reads its input, and does so in a stage of its own because the edges are
 * partitioned anew first. A count of what is kept is scaled by the third power.
 */
public final class Triangles {
  private Triangles() {}

  /**
   * Counts and prints.
   *
   * @param args the input (a file or folder that all executors see), and in how many partitions it is read at least
   * @throws Exception what Spark throws
   */
  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      throw new IllegalArgumentException("usage: Triangles IN PARTITIONS");
    }
    JavaSparkContext sc = new JavaSparkContext(new SparkConf().setIfMissing("spark.app.name", "triangles"));
    try {
      System.out.println(run(sc.sc(), args[0], Integer.parseInt(args[1])));
    } finally {
      sc.stop();
    }
  }

  static String run(SparkContext sc, String in, int partitions) throws Exception {
    long begun = System.nanoTime();
    StorageLevel memory = StorageLevel.MEMORY_ONLY();
    Graph<Object, Object> read = GraphLoader.edgeListFile(sc, in, true, partitions, memory, memory);
    Headroom.thin(read.edges()); // what GraphX joins is made of these edges alone: each triangle that is found is one
    Graph<Object, Object> graph = read.partitionBy(PartitionStrategy.RandomVertexCut$.MODULE$);
    Graph<Object, Object> counted = TriangleCount.run(graph, tag(Object.class), tag(Integer.TYPE));
    double corners = counted.vertices().toJavaRDD().mapToDouble(v -> ((Number) v._2).doubleValue()).sum();
    double found = corners / 3; // each triangle is told by its three corners

    Sample sample = Sample.of(graph.edges(), read.edges().getNumPartitions());
    Estimate triangles = Scaling.triangles(found, sample.kept, sample.total);
    ObjectNode o = Result.of("triangles");
    sample.into(o);
    o.put("found", found);
    Result.put(o, "triangles", triangles);
    return Result.line(o, begun);
  }

  @SuppressWarnings("unchecked")
  private static ClassTag<Object> tag(Class<?> type) {
    return (ClassTag<Object>) ClassTag$.MODULE$.apply(type);
  }
}
