package headroom.spark;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashSet;
import java.util.Set;
import java.util.function.IntPredicate;
import org.apache.spark.Dependency;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.Seq;

/** What the RDDs of one stage are made from. */
final class Lineage {
  private static final String GRAPHX = "org.apache.spark.graphx.";

  /**
   * The name that GraphX gives to its table of which edge partitions need which vertex. Edges are joined with it
   * partition by partition: with a part of the table missing, vertices do not reach edges that are there.
   */
  private static final String ROUTING = "vid2pid";

  /** No shuffle within the stage: it reads the job's input. */
  final boolean input;

  /** GraphX made one of the RDDs, in this stage or before it. */
  final boolean graph;

  /** The stage makes GraphX's routing table. */
  final boolean routing;

  /** The shuffles that the stage reads. */
  final Set<Integer> shuffles;

  private Lineage(Set<Integer> shuffles, boolean graph, boolean routing) {
    this.input = shuffles.isEmpty();
    this.shuffles = shuffles;
    this.graph = graph;
    this.routing = routing;
  }

  /**
   * Walks the stage that ends in {@code last}. Its RDDs' dependencies come to be here if they were not yet, and then
   * their shuffles are registered first, which is why {@code graphs} knows what was behind them.
   */
  static Lineage of(RDD<?> last, IntPredicate graphs) throws ReflectiveOperationException {
    Set<Integer> shuffles = new HashSet<>();
    boolean graph = false;
    boolean routing = false;
    Deque<RDD<?>> todo = new ArrayDeque<>();
    Set<Integer> seen = new HashSet<>();
    todo.push(last);
    while (!todo.isEmpty()) {
      RDD<?> rdd = todo.pop();
      if (!seen.add(rdd.id())) {
        continue;
      }
      String name = String.valueOf(rdd.name());
      routing |= name.contains(ROUTING);
      graph |= rdd.getClass().getName().startsWith(GRAPHX) || name.contains("EdgeRDD") || name.contains("VertexRDD");
      for (Iterator<?> it = dependencies(rdd).iterator(); it.hasNext(); ) {
        Dependency<?> d = (Dependency<?>) it.next();
        if (d instanceof ShuffleDependency) {
          int shuffle = ((ShuffleDependency<?, ?, ?>) d).shuffleId();
          shuffles.add(shuffle);
          graph |= graphs.test(shuffle);
        } else {
          todo.push(d.rdd());
        }
      }
    }
    return new Lineage(shuffles, graph, routing);
  }

  /** By reflection: the Seq in the signature is another one in Scala 2.13, but still one of these. */
  static Seq<?> dependencies(RDD<?> rdd) throws ReflectiveOperationException {
    return (Seq<?>) RDD.class.getMethod("dependencies").invoke(rdd);
  }
}
