package headroom.hadoop;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;

/**
 * Runs code of ours in Hadoop's threads. Whatever goes wrong in it is counted, logged once per place and kind, and
 * Hadoop continues as it would alone. Hadoop's own code never runs in here: its exceptions are for its own callers.
 *
 * <p>Safe for use by several threads.
 */
final class Faults {
  /** Code of ours. */
  interface Part<T> {
    T run() throws Exception;
  }

  /** As {@link Part}, without a result. */
  interface Step {
    void run() throws Exception;
  }

  /** Bounds the kinds that are remembered as logged. */
  private static final int SAID_MAX = 100;

  private final Logger log;
  private final AtomicLong count = new AtomicLong();
  private final Set<String> said = ConcurrentHashMap.newKeySet();

  Faults(Logger log) {
    this.log = log;
  }

  /** Returns what the part returns, and otherwise what Hadoop alone would have. */
  <T> T or(T alone, String what, Part<T> part) {
    try {
      return part.run();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return alone;
    } catch (Exception | LinkageError | StackOverflowError | AssertionError e) {
      note(what, e);
      return alone;
    }
  }

  void run(String what, Step step) {
    or(null, what, () -> {
      step.run();
      return null;
    });
  }

  private void note(String what, Throwable e) {
    long n = count.incrementAndGet();
    if (said.size() < SAID_MAX && said.add(what + e.getClass().getName())) {
      log.error("fault " + n + " of Headroom's plug-in, logged once: " + what + "; continuing as Hadoop alone", e);
    }
  }

  /** How many faults there were. */
  long count() {
    return count.get();
  }
}
