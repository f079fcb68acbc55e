package headroom.hadoop;

import headroom.client.StatusException;
import java.io.IOException;
import java.net.HttpURLConnection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Holds applications with a deadline until Headroom has decided whether it can be met. Nothing here blocks: a caller
 * gets an answer at once, and is notified later of the decision.
 *
 * <p>While the scheduler does not answer, everything is admitted as by Hadoop alone.
 */
final class Door {
  /** An application that waits for admission. */
  interface Visitor {
    String id();

    String user();

    String queue();

    /** The name that its user gave it; its earlier runs are known by that. Empty: none. */
    String name();

    Wishes wishes();

    /** Nobody has ended it meanwhile. */
    boolean stands();
  }

  private static final Logger LOG = LoggerFactory.getLogger(Door.class);

  /** Enough for applications that arrive together; each request takes at most two seconds. */
  private static final int THREADS = 4;

  /** At most this many wait for an answer; the others are admitted. */
  private static final int HELD_MAX = 10_000;

  /** How often a waiting application is asked about. */
  static final long AGAIN_MS = 1000;

  /** How long no request is sent after one that was not answered. */
  static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final SchedulerClient client;
  private final Faults faults;
  private final Consumer<Visitor> enter;
  private final BiConsumer<Visitor, String> refuse;
  private final LongSupplier nanos;
  private final Repeated answers = new Repeated(LOG);
  private final ScheduledThreadPoolExecutor threads;

  /** Applications that are held or admitted: true for admitted ones. */
  private final Map<String, Boolean> known = new ConcurrentHashMap<>();

  private volatile long silentUntil;

  /** Notifies enter and refuse of the decisions about held ones. */
  Door(SchedulerClient client, Faults faults, Consumer<Visitor> enter, BiConsumer<Visitor, String> refuse, LongSupplier nanos) {
    this.client = client;
    this.faults = faults;
    this.enter = enter;
    this.refuse = refuse;
    this.nanos = nanos;
    silentUntil = nanos.getAsLong();
    threads = new ScheduledThreadPoolExecutor(THREADS, r -> {
      Thread t = new Thread(r, "headroom-door");
      t.setDaemon(true);
      return t;
    });
  }

  /** Whether the application is held; otherwise it is admitted now. */
  boolean holds(Visitor v) {
    if (known.remove(v.id(), true)) {
      return false;
    }
    if (v.wishes().deadlineS == 0 || silent() || known.size() >= HELD_MAX) {
      return false;
    }
    if (known.putIfAbsent(v.id(), false) != null) {
      return true;
    }
    boolean asked = faults.or(false, "an application was asked about", () -> {
      threads.execute(() -> ask(v));
      return true;
    });
    if (!asked) {
      known.remove(v.id());
    }
    return asked;
  }

  private boolean silent() {
    return nanos.getAsLong() - silentUntil < 0;
  }

  /** Decides about one that is held. Whatever goes wrong, it is not held for ever. */
  private void ask(Visitor v) {
    boolean decided = faults.or(false, "an application was decided about", () -> {
      decide(v);
      return true;
    });
    if (!decided) {
      faults.run("an application was let in", () -> {
        known.put(v.id(), true);
        enter.accept(v);
      });
    }
  }

  private void decide(Visitor v) {
    if (!v.stands()) {
      known.remove(v.id());
      return;
    }
    Admission a;
    try {
      a = client.admit(v);
      answers.well("scheduler reachable again: admission is on");
    } catch (IOException | RuntimeException e) {
      if (ofThisOne(e)) {
        LOG.warn("{} is admitted without a decision: {}", v.id(), e.getMessage());
      } else {
        silentUntil = nanos.getAsLong() + SILENCE_NANOS;
        answers.trouble("applications are admitted without a decision: " + e.getMessage());
      }
      a = new Admission(Admission.Decision.ADMITTED, "");
    }
    switch (a.decision) {
      case REFUSED:
        known.remove(v.id());
        refuse.accept(v, a.reason);
        break;
      case QUEUED:
        threads.schedule(() -> ask(v), AGAIN_MS, TimeUnit.MILLISECONDS);
        break;
      default:
        known.put(v.id(), true);
        enter.accept(v);
    }
  }

  /** Whether the scheduler has answered, and cannot judge only this application: the others are still asked about. */
  private static boolean ofThisOne(Exception e) {
    return e instanceof StatusException && ((StatusException) e).status == HttpURLConnection.HTTP_BAD_REQUEST;
  }

  void close() {
    threads.shutdownNow();
  }
}
