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
 * Holds applications with a deadline until Headroom has said whether it can be kept. Nothing here waits: whoever asks
 * hears at once, and is told later when the answer is there.
 *
 * <p>While the scheduler does not answer, everything is admitted as Hadoop alone would.
 */
final class Door {
  /** An application at the door. */
  interface Visitor {
    String id();

    String user();

    String queue();

    Wishes wishes();

    /** Nobody has ended it meanwhile. */
    boolean stands();
  }

  private static final Logger LOG = LoggerFactory.getLogger(Door.class);

  /** Enough for applications that come together; each asks for two seconds at the most. */
  private static final int THREADS = 4;

  /** So many wait for an answer at the most; those beyond go in. */
  private static final int HELD_MAX = 10_000;

  /** How often an application that waits is asked about. */
  static final long AGAIN_MS = 1000;

  /** So long nobody is asked about after a question that was not answered. */
  static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final SchedulerClient client;
  private final Consumer<Visitor> enter;
  private final BiConsumer<Visitor, String> refuse;
  private final LongSupplier nanos;
  private final Repeated answers = new Repeated(LOG);
  private final ScheduledThreadPoolExecutor threads;

  /** Applications that are held or may enter: true for those that may. */
  private final Map<String, Boolean> known = new ConcurrentHashMap<>();

  private volatile long silentUntil;

  /** Tells enter and refuse what has become of those that were held. */
  Door(SchedulerClient client, Consumer<Visitor> enter, BiConsumer<Visitor, String> refuse, LongSupplier nanos) {
    this.client = client;
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

  /** Whether the application is held; otherwise it goes in now. */
  boolean holds(Visitor v) {
    if (known.remove(v.id(), true)) {
      return false;
    }
    if (v.wishes().deadlineS == 0 || silent() || known.size() >= HELD_MAX) {
      return false;
    }
    if (known.putIfAbsent(v.id(), false) == null) {
      threads.execute(() -> ask(v));
    }
    return true;
  }

  private boolean silent() {
    return nanos.getAsLong() - silentUntil < 0;
  }

  private void ask(Visitor v) {
    if (!v.stands()) {
      known.remove(v.id());
      return;
    }
    Admission a;
    try {
      a = client.admit(v);
      answers.well("admissions are answered again");
    } catch (IOException | RuntimeException e) {
      if (ofThisOne(e)) {
        LOG.warn("{} is admitted as without Headroom: {}", v.id(), e.getMessage());
      } else {
        silentUntil = nanos.getAsLong() + SILENCE_NANOS;
        answers.trouble("applications are admitted as without Headroom: " + e.getMessage());
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

  /** Whether the scheduler has answered, and cannot judge this application alone: the others are asked about still. */
  private static boolean ofThisOne(Exception e) {
    return e instanceof StatusException && ((StatusException) e).status == HttpURLConnection.HTTP_BAD_REQUEST;
  }

  void close() {
    threads.shutdownNow();
  }
}
