package headroom.spark;

import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaRDDLike;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;

/**
 * What was kept, for an application that scales its results. From PySpark: {@code
 * sc._jvm.headroom.spark.Headroom.kept(sc._jsc)}.
 */
public final class Headroom {
  private static final String PYTHON = "org.apache.spark.api.python.PythonRDD";

  private Headroom() {}

  /**
   * Every shuffle that was decided so far, in that order: of an RDD when its action was called, of a DataFrame when
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
   * The shuffles that one RDD was made by, and no others: those before a checkpoint too. What is kept of each is decided when an
   * action needs it.
   *
   * @param rdd the RDD
   * @return its shuffles, nearest first
   */
  public static List<Kept> kept(RDD<?> rdd) {
    Session session = Session.of(rdd.sparkContext());
    try {
      return Plan.behind(rdd, session).stream().map(session::kept).filter(Objects::nonNull).collect(Collectors.toList());
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("this Spark does not report what an RDD was made from", e);
    }
  }

  /**
   * The actions of an application so far and the sample that each was computed from: a program whose actions differ in it must
   * not put their results together without scaling them.
   *
   * @param sc the application
   * @return the newest 1000, oldest first; those before its first shuffle are not listed
   */
  public static List<Action> actions(SparkContext sc) {
    return Session.of(sc).actions();
  }

  /**
   * As {@link #actions(SparkContext)}.
   *
   * @param sc the application
   * @return the actions
   */
  public static List<Action> actions(JavaSparkContext sc) {
    return actions(sc.sc());
  }

  /**
   * Permits a sample of one input in jobs that are exact otherwise, because they join it with others or keep it in memory. Only
   * the program knows that its cogroup is an inner join. The stage that reads this RDD must read no other input. For an RDD of
   * Python functions it is the RDD that they read, because Python puts them together with those that follow.
   *
   * @param <R> its type
   * @param rdd the RDD
   * @return the same RDD
   */
  public static <R extends RDD<?>> R thin(R rdd) {
    Session session = Session.of(rdd.sparkContext());
    session.name(rdd.id());
    if (rdd.getClass().getName().equals(PYTHON)) {
      try {
        Plan.dependencies(rdd).forEach(d -> session.name(d.rdd().id()));
      } catch (ReflectiveOperationException e) {
        session.trouble("an input cannot be named: " + e);
      }
    }
    return rdd;
  }

  /**
   * As {@link #thin(RDD)}.
   *
   * @param <R> its type
   * @param rdd the RDD
   * @return the same RDD
   */
  public static <R extends JavaRDDLike<?, ?>> R thin(R rdd) {
    thin(rdd.rdd());
    return rdd;
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
}
