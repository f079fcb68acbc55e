package headroom.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The hook's state of one SparkContext: its settings, the drop ratio in force, what each shuffle keeps, and problems.
 * The shuffle manager and the plug-in share it; neither needs the other. Safe for use by several threads.
 */
final class Session {
  /** How long an answer of the scheduler holds. Longer than a restart of it, shorter than a stage that matters. */
  static final long ANSWER_HOLDS_NANOS = 10_000_000_000L;

  private static final Logger LOG = LoggerFactory.getLogger("headroom.spark");

  /** Bounds what is remembered as said: troubles of one kind differ in numbers. */
  private static final int SAID_MAX = 100;

  /** Bounds the memory of drivers that live for weeks. */
  private static final int SHUFFLES_MAX = 100_000;

  /** Weak: a driver may make one SparkContext after the other. */
  private static final Map<SparkContext, Session> SESSIONS = new WeakHashMap<>();

  final Settings settings;

  private final List<Kept> shuffles = new ArrayList<>();
  private final Map<Integer, Kept> byNumber = new HashMap<>();
  private final Set<Integer> graphs = new HashSet<>();

  /** Of the shuffles whose stages may end early, how many reduces they have. */
  private final Map<Integer, Integer> reduces = new HashMap<>();
  private final Set<String> said = new LinkedHashSet<>();
  private final long begun;
  private DropRatio ratio;

  /** The part of its partitions that a stage may leave out if it ends now, by the scheduler's newest answer. */
  private double end;

  /** Why the scheduler does not promise the deadline; "" where it does. */
  private String refused = "";
  private long ratioUntil;
  private String trouble = "";
  private int surplus;

  Session(Settings settings, long now) {
    this.settings = settings;
    this.begun = now;
    this.ratio = settings.ratio;
    this.ratioUntil = now + ANSWER_HOLDS_NANOS;
    settings.refused.forEach(this::trouble);
  }

  static Session of(SparkContext sc) {
    synchronized (SESSIONS) {
      return SESSIONS.computeIfAbsent(sc,
          c -> new Session(Settings.of(key -> c.conf().get(key, null)), System.nanoTime()));
    }
  }

  /** The drop ratio for a shuffle that is registered now, by System.nanoTime. */
  synchronized DropRatio ratio(long now) {
    if (settings.url != null && now - ratioUntil > 0) {
      trouble("no answer from the scheduler for 10 s: stages run completely until the next one");
      return DropRatio.EXACT;
    }
    return ratio;
  }

  synchronized void answered(DropRatio r, double mayEnd, String why, long now) {
    ratio = r;
    end = mayEnd;
    if (!why.isEmpty() && !why.equals(refused)) {
      LOG.warn("Headroom: {}", why);
    }
    refused = why;
    ratioUntil = now + ANSWER_HOLDS_NANOS;
  }

  /** The part of its partitions that a map stage may leave out if it ends now, by System.nanoTime. */
  synchronized double end(long now) {
    if (!settings.refused.isEmpty()) {
      return 0;
    }
    if (settings.url == null) {
      return settings.bound.end(TimeUnit.NANOSECONDS.toMillis(now - begun));
    }
    return now - ratioUntil > 0 ? 0 : end;
  }

  synchronized String refused() {
    return refused;
  }

  /** How many reduces a shuffle has whose stage may end early; 0 where it must not. */
  synchronized int reduces(int shuffle) {
    return reduces.getOrDefault(shuffle, 0);
  }

  /** The stage of a shuffle may end early. */
  synchronized void mayEnd(int shuffle, int ofReduces) {
    reduces.put(shuffle, ofReduces);
  }

  /** So many more partitions of a shuffle were given up; below 0, so many were taken back. */
  synchronized void dropped(int shuffle, int partitions) {
    Kept k = byNumber.get(shuffle);
    if (k != null && partitions != 0) {
      Kept less = k.less(partitions);
      byNumber.put(shuffle, less);
      shuffles.set(shuffles.lastIndexOf(k), less);
    }
  }

  /** What one shuffle keeps. The log tells it where something is dropped. */
  synchronized void registered(Kept k, boolean graph) {
    if (shuffles.size() == SHUFFLES_MAX) {
      int oldest = shuffles.remove(0).shuffle();
      byNumber.remove(oldest);
      reduces.remove(oldest);
      graphs.remove(oldest);
    }
    shuffles.add(k);
    byNumber.put(k.shuffle(), k);
    if (graph) {
      graphs.add(k.shuffle());
    }
    if (k.kept() < k.total()) {
      LOG.info("Headroom: {}", k);
    }
  }

  /** Whether a shuffle has GraphX's RDDs behind it. */
  synchronized boolean graph(int shuffle) {
    return graphs.contains(shuffle);
  }

  /** Null for a shuffle that was not registered by our shuffle manager. */
  synchronized Kept kept(int shuffle) {
    return byNumber.get(shuffle);
  }

  synchronized List<Kept> kept() {
    return Collections.unmodifiableList(new ArrayList<>(shuffles));
  }

  /** The newest, at most so many. */
  synchronized List<Kept> newest(int max) {
    return new ArrayList<>(shuffles.subList(Math.max(0, shuffles.size() - max), shuffles.size()));
  }

  /** Says once in the driver's log what went wrong, and tells the scheduler. */
  synchronized void trouble(String what) {
    trouble = what;
    if (said.size() < SAID_MAX && said.add(what)) {
      LOG.warn("Headroom: {}", what);
    }
  }

  /** Says something in the driver's log. */
  void say(String what) {
    LOG.info("{}", what);
  }

  /** Executors beyond those wanted that stay until nothing needs them. */
  synchronized void surplus(int executors) {
    surplus = executors;
  }

  synchronized int surplus() {
    return surplus;
  }

  synchronized String trouble() {
    return trouble;
  }
}
