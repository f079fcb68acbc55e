package headroom.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
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

  private static final int ACTIONS_MAX = 1_000;

  /** Bounds what an action remembers of a long lineage, beside samples. */
  private static final int EXACT_MAX = 256;

  /** Weak: a driver may make one SparkContext after the other. */
  private static final Map<SparkContext, Session> SESSIONS = new WeakHashMap<>();

  final Settings settings;

  /** An action that began, by the job that Spark ran for it. */
  static final class Begun {
    final int job;
    final String name;
    final List<Integer> shuffles;
    final String exact;

    Begun(int job, String name, List<Integer> shuffles, String exact) {
      this.job = job;
      this.name = name;
      this.shuffles = shuffles;
      this.exact = exact;
    }
  }

  private final List<Kept> shuffles = new ArrayList<>();
  private final Map<Integer, Kept> byNumber = new HashMap<>();
  private final Set<Integer> graphs = new HashSet<>();

  /** Of the shuffles whose stages may end early, how many reduces they have. */
  private final Map<Integer, Integer> reduces = new HashMap<>();
  private final Set<String> said = new LinkedHashSet<>();

  /** The newest actions. */
  private final Deque<Begun> actions = new ArrayDeque<>();

  /** By RDDs of which there is a checkpoint: the shuffles behind it. */
  private final Map<Integer, Set<Integer>> behind = new Newest<>();

  /** The drop ratio that each query of Spark SQL began with. */
  private final Map<String, DropRatio> queries = new Newest<>();

  /** RDDs that {@link Headroom#thin} has named. */
  private final Set<Integer> named = new HashSet<>();

  /** The highest number of a shuffle that Spark has registered. */
  private int highest = -1;

  /** Shuffles up to this number run completely unless they were decided before. */
  private int exactUpTo = -1;

  private boolean watched;
  private boolean thins;
  private String exact = "";
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
          c -> new Session(Settings.of(c.conf()), System.nanoTime()));
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
      thins = true;
      LOG.info("Headroom: {}", k);
    }
  }

  /**
   * Has the jobs of an application looked at from now on. Called when a shuffle is registered: the job that it is for has not
   * been submitted yet.
   */
  synchronized void watch(SparkContext sc, int shuffle) {
    highest = Math.max(highest, shuffle);
    if (watched) {
      return;
    }
    watched = true;
    try {
      Submissions.watch(sc, new Thinning(this, sc)::submitted);
    } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
      trouble("no partitions dropped: this Spark does not let jobs be seen before they begin: " + e);
    }
  }

  /** All shuffles that are registered and not decided run completely. */
  synchronized void exactSoFar() {
    exactUpTo = highest;
  }

  synchronized boolean exactSoFar(int shuffle) {
    return shuffle <= exactUpTo;
  }

  /** Whether anything was dropped so far. */
  synchronized boolean thins() {
    return thins;
  }

  synchronized void name(int rdd) {
    named.add(rdd);
  }

  synchronized boolean named(int rdd) {
    return named.contains(rdd);
  }

  synchronized void cut(Map<Integer, Set<Integer>> rdds) {
    behind.putAll(rdds);
  }

  /** The shuffles behind an RDD of which there is a checkpoint. */
  synchronized Set<Integer> behind(int rdd) {
    return behind.getOrDefault(rdd, Collections.emptySet());
  }

  /** The drop ratio of a query: the first that is told for it. */
  synchronized DropRatio ofQuery(String execution, DropRatio now) {
    return queries.computeIfAbsent(execution, e -> now);
  }

  /** An action begins. The log says when a program goes over from exact results to samples, or back. */
  synchronized void began(Begun a) {
    Action before = actions.isEmpty() ? null : action(actions.getLast());
    Action now = action(a);
    if (actions.size() == ACTIONS_MAX) {
      actions.removeFirst();
    }
    if (a.shuffles.size() > EXACT_MAX) {
      a.shuffles.removeIf(id -> byNumber.get(id) == null || byNumber.get(id).factor() == 1);
    }
    actions.addLast(a);
    exact = now.thinned() ? "" : a.exact;
    if (before != null && before.thinned() != now.thinned()) {
      warn(now + "; before it, " + before);
    }
  }

  /** The newest actions, oldest first. */
  synchronized List<Action> actions() {
    return actions.stream().map(this::action).collect(Collectors.toList());
  }

  private Action action(Begun a) {
    return new Action(a.job, a.name, a.shuffles.stream().map(byNumber::get).filter(Objects::nonNull).collect(Collectors.toList()), a.exact);
  }

  /** Says once why something is computed exactly. */
  synchronized void exact(String why) {
    warn("computed exactly: " + why);
  }

  /** Why the newest action is exact; "" where it is not, or nothing was to be dropped. */
  synchronized String exact() {
    return exact;
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
    warn(what);
  }

  private void warn(String what) {
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

  /** The newest entries. */
  private static final class Newest<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1;

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
      return size() > ACTIONS_MAX;
    }
  }
}
