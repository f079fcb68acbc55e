package headroom.spark;

import java.lang.reflect.Method;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;

/**
 * A line about Headroom on the Environment page of Spark's UI, which its REST interface and event log have too: what the scheduler
 * grants, since when, and what is dropped. Not safe for use by several threads.
 */
final class Page {
  static final String KEY = "headroom.status";

  /** Between two changes: each writes the whole environment into the event log. */
  static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final SparkContext sc;
  private final Session session;
  private String shown = "";
  private long changed;
  private int executors = Answer.AS_THEY_ARE;
  private Instant since;

  Page(SparkContext sc, Session session) {
    this.sc = sc;
    this.session = session;
  }

  /** {@code now} is by System.nanoTime. */
  void show(Answer a, long now) {
    if (a.executors != executors || since == null) {
      executors = a.executors;
      since = Instant.now().truncatedTo(ChronoUnit.SECONDS);
    }
    String text = text(a);
    if (text.equals(shown) || !shown.isEmpty() && now - changed < PAUSE_NANOS) {
      return;
    }
    shown = text;
    changed = now;
    try {
      Method post = SparkContext.class.getDeclaredMethod("postEnvironmentUpdate");
      post.setAccessible(true);
      sc.conf().set(KEY, text);
      post.invoke(sc);
    } catch (ReflectiveOperationException | RuntimeException e) {
      session.trouble("nothing is shown on Spark's page: " + e);
    }
  }

  private String text(Answer a) {
    long total = 0;
    long kept = 0;
    for (Kept k : session.kept()) {
      total += k.total();
      kept += k.kept();
    }
    String share = executors == Answer.AS_THEY_ARE ? "no limit on executors" : "capped at " + executors + " executors";
    String exact = session.exact().isEmpty() ? "" : "; computed exactly: " + session.exact();
    return share + " since " + since + "; drop ratio " + a.ratio.theta + "; " + (total - kept) + " of " + total + " map partitions dropped" + exact;
  }
}
