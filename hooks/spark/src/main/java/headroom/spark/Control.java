package headroom.spark;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.ExecutorAllocationClient;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.ExecutorDecommissionInfo;
import scala.Option;

/** Does to an application what an answer says. Not safe for use by several threads. */
final class Control {
  /** The part of a SparkContext that is acted upon. */
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

  private final Target target;
  private final Session session;

  /** Were told to go and are still there. */
  private final Set<String> leaving = new HashSet<>();

  private int accepted = Answer.AS_THEY_ARE;

  Control(Target target, Session session) {
    this.target = target;
    this.session = session;
  }

  /** {@code executors} are those that are there, oldest first. */
  void follow(Answer a, List<Executors.View> executors) {
    if (a.cancel) {
      target.cancel();
    }
    leaving.retainAll(executors.stream().map(e -> e.id).collect(Collectors.toSet()));
    if (a.executors == Answer.AS_THEY_ARE) {
      session.surplus(0);
      return;
    }
    int surplus = executors.size() - leaving.size() - a.executors;
    if (surplus <= 0 && a.executors == accepted) {
      session.surplus(0);
      return;
    }
    String fixed = target.fixed();
    if (fixed != null) {
      session.trouble("executors stay as they are: " + fixed);
      return;
    }
    int stay = lower(surplus, executors);
    session.surplus(stay);
    if (target.dynamic()) {
      bound(a.executors, executors.size());
    } else if ((stay < surplus || a.executors != accepted) && target.request(a.executors)) {
      // Each one that goes lowers what Spark aims at by one, so the number is told last.
      accepted = a.executors;
    }
  }

  /**
   * Lets as many go as there are too many, newest first, and returns how many stay for now. What is killed takes its
   * shuffle files with it, so only those are that nothing runs on and no action under way needs.
   */
  private int lower(int surplus, List<Executors.View> executors) {
    int left = surplus;
    for (int i = executors.size() - 1; i >= 0 && left > 0; i--) {
      Executors.View e = executors.get(i);
      if (!leaving.contains(e.id) && goes(e)) {
        leaving.add(e.id);
        left--;
      }
    }
    return Math.max(0, left);
  }

  private boolean goes(Executors.View e) {
    if (target.decommissions()) {
      return target.decommission(e.id);
    }
    return e.idle && (!e.holds || target.keepsFiles()) && !target.dynamic() && target.kill(e.id);
  }

  /** With dynamic allocation Spark may want fewer: only what reaches beyond the bound is taken back, as often as it does. */
  private void bound(int most, int there) {
    if (there >= most) {
      target.request(most);
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
