package headroom.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.Seq;

/**
 * Everything that one Spark job is made from, down to its inputs, by stages. It is read with loops, not by recursion, and in a
 * bounded number of steps.
 */
final class Plan {
  /** Bounds the walk: Spark itself needs seconds for a plan of this size. */
  static final int STEPS_MAX = 200_000;

  private static final String GRAPHX = "org.apache.spark.graphx.";
  private static final String CHECKPOINT = "CheckpointRDD";

  /** Spark SQL zips partitions, or unites them, in these operators; {@link Query} judges those. */
  private static final String SQL_OPERATORS = "(WholeStageCodegen|SortMergeJoin|ShuffledHashJoin|CartesianProduct|BroadcastNestedLoopJoin|Union).*";

  /**
   * The name that GraphX gives to its table of which edge partitions need which vertex. Edges are joined with it
   * partition by partition: with a part of the table missing, vertices do not reach edges that are there.
   */
  private static final String ROUTING = "vid2pid";

  /** The RDDs from one shuffle, or the job's end, down to the next shuffles. */
  static final class Stage {
    /** Null of the stage that the job ends with. */
    final ShuffleDependency<?, ?, ?> dependency;

    final RDD<?> last;

    /** The shuffles that the stage reads. */
    final Set<Integer> shuffles = new HashSet<>();

    /** GraphX made one of the RDDs. */
    boolean graph;

    /** The stage makes GraphX's routing table. */
    boolean routing;

    /** One of the RDDs reads a checkpoint. */
    boolean checkpoint;

    /** One of the RDDs is kept in memory or on disk, and not by GraphX. */
    boolean cached;

    /** {@link Headroom#thin} has named one of the RDDs. */
    boolean named;

    /** The operation within the stage that has several inputs; null for none. */
    String joins;

    private Stage(ShuffleDependency<?, ?, ?> dependency, RDD<?> last) {
      this.dependency = dependency;
      this.last = last;
    }

    /** It reads the job's input. */
    boolean input() {
      return shuffles.isEmpty() && !checkpoint;
    }
  }

  private final Session session;

  /** By the numbers of their shuffles. */
  private final Map<Integer, Stage> stages = new LinkedHashMap<>();

  private final Set<Integer> inputs = new HashSet<>();
  private final Deque<Stage> todo = new ArrayDeque<>();

  /** RDDs that will be cut off by a checkpoint when the job has ended. */
  private final List<RDD<?>> cuts = new ArrayList<>();

  /** Samples behind checkpoints. */
  private final Set<Integer> earlier = new HashSet<>();

  private int steps;
  private String joins;
  private boolean graphJoins;

  private Plan(Session session) {
    this.session = session;
  }

  /** Of a job that ends in an RDD. */
  static Plan of(RDD<?> last, Session session) throws ReflectiveOperationException {
    Plan p = new Plan(session);
    p.todo.add(new Stage(null, last));
    p.walk();
    return p;
  }

  /** Of a job that ends in a shuffle. */
  static Plan of(ShuffleDependency<?, ?, ?> last, Session session) throws ReflectiveOperationException {
    Plan p = new Plan(session);
    p.found(last);
    p.walk();
    return p;
  }

  /** Its stages that end in a shuffle; each comes after those that it reads. */
  List<Stage> stages() {
    List<Stage> order = new ArrayList<>();
    Set<Integer> entered = new HashSet<>();
    Set<Integer> left = new HashSet<>();
    for (Integer first : stages.keySet()) {
      Deque<Integer> path = new ArrayDeque<>();
      path.push(first);
      while (!path.isEmpty()) {
        int id = path.peek();
        if (entered.add(id)) {
          stages.get(id).shuffles.stream().filter(below -> !entered.contains(below)).forEach(path::push);
        } else {
          path.pop();
          if (left.add(id)) {
            order.add(stages.get(id));
          }
        }
      }
    }
    return order;
  }

  /** The shuffles that the job's result depends on, those behind checkpoints too. */
  Set<Integer> shuffles() {
    Set<Integer> all = new HashSet<>(stages.keySet());
    all.addAll(earlier);
    return all;
  }

  /** RDDs that the job will leave a checkpoint of, with the shuffles behind each. */
  Map<Integer, Set<Integer>> cuts() {
    Map<Integer, Set<Integer>> all = new HashMap<>();
    Set<Integer> behind = cuts.isEmpty() ? null : shuffles(); // all of the plan: more than it needs is said, never less
    cuts.forEach(rdd -> all.put(rdd.id(), behind));
    return all;
  }

  /** Whether a shuffle has the format of Spark SQL's rows. */
  boolean sql() {
    return stages.values().stream().anyMatch(s -> s.dependency.serializer().getClass().getName().startsWith("org.apache.spark.sql."));
  }

  /** The operation with several inputs that the job's result depends on, in words; null where there is none, or GraphX alone has them. */
  String joins() {
    if (joins == null && graphJoins && inputs.size() > 1) {
      return "a graph that is joined with another input";
    }
    return joins;
  }

  private void walk() throws ReflectiveOperationException {
    while (!todo.isEmpty()) {
      walk(todo.remove());
    }
  }

  private void walk(Stage stage) throws ReflectiveOperationException {
    Deque<RDD<?>> rdds = new ArrayDeque<>();
    Set<Integer> seen = new HashSet<>();
    rdds.push(stage.last);
    while (!rdds.isEmpty()) {
      RDD<?> rdd = rdds.pop();
      if (!seen.add(rdd.id())) {
        continue;
      }
      List<Dependency<?>> dependencies = dependencies(rdd);
      steps += 1 + dependencies.size();
      if (steps > STEPS_MAX) {
        throw new IllegalArgumentException("its plan has more than " + STEPS_MAX + " steps");
      }
      look(stage, rdd, dependencies.size());
      for (Dependency<?> d : dependencies) {
        if (d instanceof ShuffleDependency) {
          stage.shuffles.add(found((ShuffleDependency<?, ?, ?>) d));
        } else {
          rdds.push(d.rdd());
        }
      }
    }
  }

  private int found(ShuffleDependency<?, ?, ?> d) {
    if (!stages.containsKey(d.shuffleId())) {
      Stage s = new Stage(d, d.rdd());
      stages.put(d.shuffleId(), s);
      todo.add(s);
    }
    return d.shuffleId();
  }

  private void look(Stage stage, RDD<?> rdd, int dependencies) {
    String kind = rdd.getClass().getName();
    String name = String.valueOf(rdd.name());
    boolean ofGraph = kind.startsWith(GRAPHX) || byGraphX(rdd);
    stage.routing |= name.contains(ROUTING);
    stage.graph |= kind.startsWith(GRAPHX) || name.contains("EdgeRDD") || name.contains("VertexRDD");
    stage.named |= session.named(rdd.id());
    stage.checkpoint |= rdd.isCheckpointed() || kind.contains(CHECKPOINT);
    stage.cached |= rdd.getStorageLevel().isValid() && !ofGraph;
    if (rdd.isCheckpointed()) {
      earlier.addAll(session.behind(rdd.id()));
    } else if (rdd.checkpointData().isDefined()) {
      cuts.add(rdd);
    }
    if (dependencies == 0) {
      inputs.add(rdd.id());
    } else if (dependencies > 1) {
      several(stage, rdd, ofGraph);
    }
  }

  private void several(Stage stage, RDD<?> rdd, boolean ofGraph) {
    String scope = rdd.scope().isEmpty() ? "" : rdd.scope().get().name();
    if (ofGraph) {
      graphJoins = true;
    } else if (!scope.matches(SQL_OPERATORS)) {
      joins = "several inputs: " + (scope.isEmpty() ? rdd.getClass().getSimpleName() : scope);
      stage.joins = joins;
    }
  }

  /** GraphX called for it: the first frame of its call site that is not Spark's core. */
  private static boolean byGraphX(RDD<?> rdd) {
    if (rdd.creationSite() == null) {
      return false;
    }
    String[] frames = rdd.creationSite().longForm().split("\n", 3);
    return frames[0].startsWith(GRAPHX) || frames.length > 1 && frames[1].trim().startsWith(GRAPHX);
  }

  /** By reflection: the Seq in the signature is another one in Scala 2.13, but still one of these. */
  static List<Dependency<?>> dependencies(RDD<?> rdd) throws ReflectiveOperationException {
    List<Dependency<?>> all = new ArrayList<>();
    for (Iterator<?> it = ((Seq<?>) RDD.class.getMethod("dependencies").invoke(rdd)).iterator(); it.hasNext(); ) {
      all.add((Dependency<?>) it.next());
    }
    return all;
  }

  /** The shuffles behind an RDD, nearest first. */
  static Collection<Integer> behind(RDD<?> rdd, Session session) throws ReflectiveOperationException {
    Plan p = of(rdd, session);
    List<Integer> all = new ArrayList<>(p.stages.keySet());
    p.earlier.stream().filter(id -> !all.contains(id)).sorted().forEach(all::add);
    return all;
  }
}
