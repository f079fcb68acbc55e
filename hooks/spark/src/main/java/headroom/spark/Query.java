package headroom.spark;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.SparkContext;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * Whether a query of Spark SQL is safe to compute from a sample. It is when every row of its result is a row of the true
 * answer, or an aggregation over the sample: operators that are not known to be so make it exact. By reflection, as a driver may
 * have no Spark SQL, and because the Seq in its signatures is another one in Scala 2.13.
 */
final class Query {
  private static final Set<String> ROWS = names("Project Filter TypedFilter Generate Expand Sample DeserializeToObject SerializeFromObject MapElements"
      + " MapPartitions MapInPandas MapInArrow AppendColumns AppendColumnsWithObject ArrowEvalPython BatchEvalPython SubqueryAlias View ResolvedHint"
      + " InsertIntoHadoopFsRelationCommand WriteFiles AppendData OverwriteByExpression");
  private static final Set<String> AGGREGATIONS = names("Aggregate Distinct Deduplicate MapGroups FlatMapGroupsInPandas FlatMapGroupsInArrow");
  private static final Set<String> MOVES = names("Repartition RepartitionByExpression RebalancePartitions Sort");
  private static final Set<String> LIMITS = names("GlobalLimit LocalLimit");
  private static final Set<String> INPUTS = names("LogicalRelation LogicalRDD ExternalRDD Range LocalRelation OneRowRelation EmptyRelation"
      + " DataSourceV2ScanRelation DataSourceV2Relation HiveTableRelation");

  private Query() {}

  private static Set<String> names(String words) {
    return Collections.unmodifiableSet(new HashSet<>(Arrays.asList(words.split(" "))));
  }

  /** An operator, and what is above it. */
  private static final class Node {
    final Object plan;

    /** An aggregation is above it. */
    final boolean aggregated;

    /** A condition is above it, and no aggregation between. */
    final boolean filtered;

    /** Rows come by a shuffle from here to the result as they are. */
    final boolean moved;

    Node(Object plan, boolean aggregated, boolean filtered, boolean moved) {
      this.plan = plan;
      this.aggregated = aggregated;
      this.filtered = filtered;
      this.moved = moved;
    }
  }

  /** Why the query of an execution must be exact, in words; null where it may be of a sample. */
  static String unsafe(SparkContext sc, long execution) throws ReflectiveOperationException {
    Class<?> executions = Class.forName("org.apache.spark.sql.execution.SQLExecution", true, sc.getClass().getClassLoader());
    Object query = executions.getMethod("getQueryExecution", long.class).invoke(null, execution);
    return query == null ? "its query is unknown" : unsafe(call(query, "optimizedPlan"));
  }

  static String unsafe(Object plan) throws ReflectiveOperationException {
    Deque<Node> todo = new ArrayDeque<>();
    todo.push(new Node(plan, false, false, false));
    for (int steps = 1; !todo.isEmpty(); steps++) {
      if (steps > Plan.STEPS_MAX) {
        return "its query has more than " + Plan.STEPS_MAX + " operators";
      }
      String why = look(todo.pop(), todo);
      if (why != null) {
        return why;
      }
    }
    return null;
  }

  private static String look(Node n, Deque<Node> todo) throws ReflectiveOperationException {
    String name = n.plan.getClass().getSimpleName();
    if (((Seq<?>) call(n.plan, "subqueries")).iterator().hasNext()) {
      return "a subquery";
    }
    if (INPUTS.contains(name)) {
      return n.moved ? "it moves rows and aggregates none" : null;
    }
    boolean aggregates = AGGREGATIONS.contains(name);
    boolean joins = name.equals("Join");
    String why = judge(n, name);
    if (why != null) {
      return why;
    }
    boolean filters = n.filtered || name.equals("Filter") || name.equals("TypedFilter");
    boolean moves = n.moved || MOVES.contains(name) && !n.aggregated;
    for (Iterator<?> it = ((Seq<?>) call(n.plan, "children")).iterator(); it.hasNext(); ) {
      todo.push(new Node(it.next(), n.aggregated || aggregates, filters && !aggregates, moves && !aggregates && !joins));
    }
    return null;
  }

  private static String judge(Node n, String name) throws ReflectiveOperationException {
    if (AGGREGATIONS.contains(name)) {
      return n.filtered ? "a condition on an aggregate" : null;
    }
    if (LIMITS.contains(name)) {
      return n.aggregated ? "a limit below an aggregation" : null;
    }
    if (name.equals("Join")) {
      String type = String.valueOf(call(n.plan, "joinType"));
      return type.equals("Inner") || type.equals("Cross") ? null : "a join of type " + type;
    }
    if (name.equals("InMemoryRelation")) {
      return "it reads a cached table";
    }
    return ROWS.contains(name) || MOVES.contains(name) ? null : "the operator " + name;
  }

  private static Object call(Object on, String method) throws ReflectiveOperationException {
    try {
      return on.getClass().getMethod(method).invoke(on);
    } catch (InvocationTargetException e) {
      throw new ReflectiveOperationException(method + " fails", e.getCause());
    }
  }
}
