package headroom.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.ExecutorAllocationClient;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import scala.Option;

/** Applies an answer to an application. Not safe for use by several threads. */
final class Control {
  /** The part of a SparkContext that is changed. */
  interface Target {
    /** Why executors cannot be asked for here; null where they can. */
    String fixed();

    /** Spark itself asks for executors and gives idle ones back; then the answer's number only bounds them. */
    boolean dynamic();

    /** Executors can leave by themselves: they end their tasks first. */
    boolean decommissions();

    /** Shuffle files outlive their executor: another process of the node serves them. */
    boolean keepsFiles();

    /** Asks for so many in all; false where Spark is not ready for it. */
    boolean request(int executors);

    /** Ends one at once. */
    boolean kill(String executor);

    /** Lets one leave. */
    boolean decommission(String executor);

    /** Cancels all jobs that run or wait. */
    void cancel();
  }

  /** How long a surplus executor may stay for what it has; then it goes where not too much is lost with it. */
  static final long PATIENCE_NANOS = 30_000_000_000L;

  /** What may be lost then with one executor: this much work of tasks is done again. */
  static final long LOSS_MAX_MS = 60_000;

  private final Target target;
  private final Session session;

  /** Were told to go and are still there. */
  private final Set<String> leaving = new HashSet<>();

  private int accepted = Answer.AS_THEY_ARE;

  /** The bound of dynamic allocation that was set last; 0 for none. */
  private int bounded;

  /** There are too many since then; without meaning while there are not. */
  private long surplusSince;

  private boolean surplus;

  Control(Target target, Session session) {
    this.target = target;
    this.session = session;
  }

  /** {@code executors} are those that are there, oldest first, {@code now} is by System.nanoTime. */
  void follow(Answer a, List<Executors.View> executors, long now) {
    if (a.cancel) {
      target.cancel();
    }
    leaving.retainAll(executors.stream().map(e -> e.id).collect(Collectors.toSet()));
    int many = a.executors == Answer.AS_THEY_ARE ? 0 : executors.size() - leaving.size() - a.executors;
    if (many <= 0 || !surplus) {
      surplusSince = now;
    }
    surplus = many > 0;
    if (a.executors == Answer.AS_THEY_ARE || (many <= 0 && a.executors == accepted)) {
      session.surplus(0);
      return;
    }
    String fixed = target.fixed();
    if (fixed != null) {
      session.trouble("executors not changed: " + fixed);
      return;
    }
    int stay = Math.max(0, many) - lower(many, executors, now - surplusSince >= PATIENCE_NANOS);
    session.surplus(stay);
    if (target.dynamic()) {
      bound(a.executors, executors.size());
    } else if ((stay < many || a.executors != accepted) && target.request(a.executors)) {
      // Each one that goes lowers what Spark aims at by one, so the number is told last.
      accepted = a.executors;
    }
  }

  /**
   * Lets executors go and returns how many. Those that end their tasks first, and keep their shuffle files, go at once,
   * newest first. What is killed takes both with it: so only those are that nothing runs on and no action under way needs,
   * or, once they have waited for that in vain, those with the least to lose.
   */
  private int lower(int many, List<Executors.View> executors, boolean waited) {
    int gone = 0;
    for (Executors.View e : inOrder(executors)) {
      if (gone < many && !leaving.contains(e.id) && goes(e, waited)) {
        leaving.add(e.id);
        gone++;
      }
    }
    return gone;
  }

  private List<Executors.View> inOrder(List<Executors.View> executors) {
    List<Executors.View> newestFirst = new ArrayList<>(executors);
    Collections.reverse(newestFirst);
    if (!target.decommissions()) {
      newestFirst.sort(Comparator.comparingLong(this::loss));
    }
    return newestFirst;
  }

  private boolean goes(Executors.View e, boolean waited) {
    if (target.decommissions()) {
      return target.decommission(e.id);
    }
    boolean free = e.idle && (!e.holds || target.keepsFiles());
    return (free || (waited && loss(e) <= LOSS_MAX_MS)) && !target.dynamic() && target.kill(e.id);
  }

  /** The work that is done again when it is killed. */
  private long loss(Executors.View e) {
    return e.runningMs + (target.keepsFiles() ? 0 : e.heldMs);
  }

  /**
   * With dynamic allocation Spark may want fewer: only what reaches beyond the bound is taken back, as often as it does. It
   * does not ask again for what was taken back, so a bound that rises is asked for once; what it does not need it gives back.
   */
  private void bound(int most, int there) {
    if (there >= most) {
      target.request(most);
      bounded = most;
    } else if (bounded > 0 && most > bounded && target.request(most)) {
      bounded = 0;
    }
    accepted = Answer.AS_THEY_ARE;
  }

  /** The real one. */
  static Target of(SparkContext sc) {
    return new Target() {
      @Override
      public String fixed() {
        return sc.isLocal() ? "the master is local" : null;
      }

      @Override
      public boolean dynamic() {
        return sc.conf().getBoolean("spark.dynamicAllocation.enabled", false);
      }

      @Override
      public boolean decommissions() {
        return sc.conf().getBoolean("spark.decommission.enabled", false) && sc.schedulerBackend() instanceof ExecutorAllocationClient;
      }

      @Override
      public boolean keepsFiles() {
        return sc.conf().getBoolean("spark.shuffle.service.enabled", false);
      }

      @Override
      public boolean request(int executors) {
        return sc.requestTotalExecutors(executors, 0, scala.collection.immutable.Map$.MODULE$.empty());
      }

      @Override
      public boolean kill(String executor) {
        return sc.killExecutor(executor);
      }

      @Override
      public boolean decommission(String executor) {
        return ((ExecutorAllocationClient) sc.schedulerBackend())
            .decommissionExecutor(executor, new ExecutorDecommissionInfo("Headroom: fewer executors", Option.empty()), true, false);
      }

      @Override
      public void cancel() {
        sc.cancelAllJobs();
      }
    };
  }
}
