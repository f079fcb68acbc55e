package headroom.spark;

import java.util.List;
import org.apache.spark.SparkContext;

/** Does to an application what an answer says. Not safe for use by several threads. */
final class Control {
  /** The part of a SparkContext that is acted upon. */
  interface Target {
    /** Why executors cannot be asked for here; null where they can. */
    String fixed();

    /** Asks for so many in all; false where Spark is not ready for it. */
    boolean request(int executors);

    /** Ends one. */
    boolean kill(String executor);

    /** Cancels all jobs that run or wait. */
    void cancel();
  }

  private final Target target;
  private final Session session;
  private int accepted = Answer.AS_THEY_ARE;

  Control(Target target, Session session) {
    this.target = target;
    this.session = session;
  }

  /** {@code executors} are those that are there, oldest first. */
  void follow(Answer a, List<String> executors) {
    if (a.cancel) {
      target.cancel();
    }
    if (a.executors == Answer.AS_THEY_ARE || a.executors == accepted) {
      return;
    }
    String fixed = target.fixed();
    if (fixed != null) {
      session.trouble("executors stay as they are: " + fixed);
    } else if (shift(a.executors, executors)) {
      accepted = a.executors;
    }
  }

  /**
   * Each kill lowers what Spark aims at by one, so the number is told last. The newest go first: they hold the fewest
   * shuffle files.
   */
  private boolean shift(int want, List<String> executors) {
    for (int i = executors.size() - 1; i >= want; i--) {
      target.kill(executors.get(i));
    }
    return target.request(want);
  }

  /** The real one. */
  static Target of(SparkContext sc) {
    return new Target() {
      @Override
      public String fixed() {
        if (sc.isLocal()) {
          return "the master is local";
        }
        return sc.conf().getBoolean("spark.dynamicAllocation.enabled", false) ? "spark.dynamicAllocation.enabled rules them" : null;
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
      public void cancel() {
        sc.cancelAllJobs();
      }
    };
  }
}
