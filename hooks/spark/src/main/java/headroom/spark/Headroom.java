package headroom.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;

/**
 * What was kept, for an application that scales its results. From PySpark: {@code
 * sc._jvm.headroom.spark.Headroom.kept(sc._jsc)}.
 */
public final class Headroom {
  private Headroom() {}

  /**
   * Every shuffle that was registered so far, in that order: of an RDD when its action was called, of a DataFrame when
   * its stage was submitted. Empty where Spark runs without our shuffle manager.
   *
   * @param sc the application
   * @return the shuffles, the newest 100000
   */
  public static List<Kept> kept(SparkContext sc) {
    return Session.of(sc).kept();
  }

  /**
   * As {@link #kept(SparkContext)}.
   *
   * @param sc the application
   * @return the shuffles
   */
  public static List<Kept> kept(JavaSparkContext sc) {
    return kept(sc.sc());
  }

  /**
   * The shuffles that one RDD was made by, and no others.
   *
   * @param rdd the RDD; its shuffles are registered by this if they were not yet
   * @return its shuffles, nearest first
   */
  public static List<Kept> kept(RDD<?> rdd) {
    Session session = Session.of(rdd.sparkContext());
    List<Kept> kept = new ArrayList<>();
    Deque<RDD<?>> todo = new ArrayDeque<>();
    Set<Integer> seen = new HashSet<>();
    Set<Integer> shuffles = new HashSet<>();
    todo.add(rdd);
    while (!todo.isEmpty()) {
      RDD<?> r = todo.remove();
      if (!seen.add(r.id())) {
        continue;
      }
      for (Iterator<?> it = dependencies(r).iterator(); it.hasNext(); ) {
        Dependency<?> d = (Dependency<?>) it.next();
        todo.add(d.rdd());
        if (d instanceof ShuffleDependency && shuffles.add(((ShuffleDependency<?, ?, ?>) d).shuffleId())) {
          Kept k = session.kept(((ShuffleDependency<?, ?, ?>) d).shuffleId());
          if (k != null) {
            kept.add(k);
          }
        }
      }
    }
    return kept;
  }

  /**
   * What a count or a sum behind all of these stages is multiplied by: the product of total / kept.
   *
   * @param shuffles those on the way to the result
   * @return 1 or more
   */
  public static double factor(Collection<Kept> shuffles) {
    double factor = 1;
    for (Kept k : shuffles) {
      factor *= k.factor();
    }
    return factor;
  }

  private static scala.collection.Seq<?> dependencies(RDD<?> rdd) {
    try {
      return Lineage.dependencies(rdd);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark does not tell what an RDD was made from", e);
    }
  }
}
