package headroom.spark;

import headroom.client.Addresses;
import headroom.client.Pinned;
import headroom.client.PinnedFiles;
import java.io.IOException;
import java.net.MalformedURLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import org.apache.spark.SparkConf;

/** The properties that the hook reads from Spark's conf. Errors in them are kept in words. */
final class Settings {
  /** Also a local property of a job ({@code SparkContext.setLocalProperty}), or a setting of a session of Spark SQL. */
  static final String THETA = "spark.headroom.theta";

  /** As {@link #THETA}. */
  static final String SEED = "spark.headroom.seed";

  /** When the input's stages may end early. With a scheduler these three are only asked for. */
  static final String DEADLINE = "spark.headroom.deadline";

  static final String ERROR = "spark.headroom.error";
  static final String MIN_TASKS = "spark.headroom.min-tasks";

  /** Whether the application ends at its start where its deadline is not promised. */
  static final String REFUSE = "spark.headroom.refuse";

  static final String STAGES = "spark.headroom.stages";
  static final String ADDRESS = "spark.headroom.url";
  static final String JOB = "spark.headroom.job";
  static final String RUN = "spark.headroom.run";
  static final String TOKEN = "spark.headroom.token";

  /** Holds the token where the conf does not: a conf is on a command line that everybody reads. */
  static final String TOKEN_VARIABLE = "HEADROOM_SPARK_TOKEN";

  /** File with the token, read anew for each report; used where neither of the two names one. */
  static final String TOKEN_FILE = "spark.headroom.token-file";

  /** What the owner of an application asks for; the scheduler says what it makes of it. */
  static final List<String> ASKS = Collections.unmodifiableList(
      Arrays.asList("min-tasks", "quality", "profile", "error", "class", "deadline", "sprint-after", "deflate"));

  private static final String PREFIX = "spark.headroom.";

  /** What is set there is not copied into the jobs of Spark SQL. */
  private static final String HIDDEN = "headroom.conf.";
  private static final int ASK_MAX = 200;

  /** File with the certificate of the cluster's authority; an https address needs it. */
  static final String CA = "spark.headroom.ca";

  /** Names that file where the conf does not. */
  static final String CA_VARIABLE = "HEADROOM_CA";

  static final String INTERVAL_MS = "spark.headroom.interval-ms";
  static final String TIMEOUT_MS = "spark.headroom.timeout-ms";

  private static final int JOB_MAX = 256;

  /** At the start; with a scheduler its answers follow. */
  final DropRatio ratio;

  final Stages stages;

  /** Holds where there is no scheduler. */
  final Bound bound;

  /** Null without a scheduler. */
  final Addresses url;

  /** Null in the clear. */
  final PinnedFiles tls;

  /** "" for an application that Headroom did not start: its id stands for it. */
  final String job;

  final int run;

  /** "" for none. */
  final String token;

  /** "" for none. */
  final String tokenFile;

  /** By the names of {@link #ASKS}, as they are written. */
  final Map<String, String> asks;

  final boolean refuse;
  final int intervalMs;
  final int timeoutMs;

  /** What is wrong with the conf; if anything is, nothing is dropped. */
  final List<String> refused;

  private final Map<String, String> configured = new HashMap<>();

  private Settings(Reader r) {
    Arrays.asList(THETA, SEED).forEach(key -> configured.put(key, r.conf.apply(key)));
    ratio = new DropRatio(r.read(THETA, "0", t -> DropRatio.checked(Double.parseDouble(t)), 0.0),
        r.read(SEED, "1", Long::parseLong, 1L));
    stages = r.read(STAGES, "input", Stages::of, Stages.NONE);
    url = r.read(ADDRESS, "", Settings::url, null);
    tls = url == null || !url.secure() ? null : r.read(CA, "", Pinned::by, null);
    job = url == null ? "" : r.read(JOB, "", Settings::job, "");
    run = url == null ? 0 : r.whole(RUN, job.isEmpty() ? "1" : "", 1, Integer.MAX_VALUE);
    token = r.read(TOKEN, "", Settings::token, "");
    tokenFile = r.read(TOKEN_FILE, "", text -> text, "");
    asks = r.asks();
    bound = url != null ? Bound.NONE : new Bound(r.read(DEADLINE, "", t -> t.isEmpty() ? 0 : Bound.durationMs(t), 0L),
        r.read(ERROR, "0", Bound::error, 0.0), r.read(MIN_TASKS, "1", Bound::part, 1.0));
    refuse = r.read(REFUSE, "false", Settings::yes, false);
    intervalMs = r.whole(INTERVAL_MS, "1000", 50, 10_000);
    timeoutMs = r.whole(TIMEOUT_MS, "2000", 1, 10_000);
    refused = Collections.unmodifiableList(r.refused);
  }

  /** Whether its owner asks for a deadline or an error bound. */
  boolean asksBound() {
    return bound.set() || asks.containsKey("deadline") || asks.containsKey("error");
  }

  /** Whether stages may end early: where the scheduler says so, or without one by the owner's bound. */
  boolean mayEnd() {
    return url != null || bound.set();
  }

  /**
   * Moves the drop ratio and the seed within Spark's conf. Spark SQL copies a conf into the local properties of its jobs, where they
   * would stand in for what a job sets for itself.
   */
  static void hide(SparkConf conf) {
    for (String key : Arrays.asList(THETA, SEED)) {
      if (conf.contains(key)) {
        conf.set(HIDDEN + key, conf.get(key)).remove(key);
      }
    }
  }

  /** Reads Spark's conf, whether something was moved in it or not. */
  static Settings of(SparkConf conf) {
    return of(key -> conf.get(HIDDEN + key, conf.get(key, null)));
  }

  /** What the conf has for the drop ratio or the seed; null for nothing. */
  String configured(String key) {
    return configured.get(key);
  }

  /** Reads by {@code conf}, which answers null for what is not set, and the token from the environment. */
  static Settings of(UnaryOperator<String> conf) {
    return of(conf, System::getenv);
  }

  /** As {@link #of(UnaryOperator)}, with the environment as {@code environment}. */
  static Settings of(UnaryOperator<String> conf, UnaryOperator<String> environment) {
    return new Settings(new Reader(key -> {
      String set = conf.apply(key);
      if (set == null && key.equals(CA)) {
        return environment.apply(CA_VARIABLE);
      }
      return set == null && key.equals(TOKEN) ? environment.apply(TOKEN_VARIABLE) : set;
    }));
  }

  private static Addresses url(String text) throws MalformedURLException {
    return text.isEmpty() ? null : Addresses.of(text);
  }

  private static String job(String text) {
    if (text.length() > JOB_MAX) {
      throw new IllegalArgumentException("a job's id has at most " + JOB_MAX + " characters");
    }
    return text;
  }

  private static String token(String text) {
    if (!text.matches("[!-~]*")) {
      throw new IllegalArgumentException("a token must be printable ASCII without spaces");
    }
    return text;
  }

  private static boolean yes(String text) {
    if (!text.equals("true") && !text.equals("false")) {
      throw new IllegalArgumentException("must be true or false");
    }
    return text.equals("true");
  }

  private interface Parser<T> {
    T parse(String text) throws IOException;
  }

  private static final class Reader {
    private final UnaryOperator<String> conf;
    private final List<String> refused = new ArrayList<>();

    Reader(UnaryOperator<String> conf) {
      this.conf = conf;
    }

    <T> T read(String key, String unset, Parser<T> parser, T otherwise) {
      String text = conf.apply(key);
      text = text == null ? unset : text.trim();
      try {
        return parser.parse(text);
      } catch (IOException | IllegalArgumentException e) {
        String shown = key.equals(TOKEN) ? "" : "=" + text;
        refused.add(key + shown + " is invalid, nothing is dropped: " + e.getMessage());
        return otherwise;
      }
    }

    Map<String, String> asks() {
      Map<String, String> all = new TreeMap<>();
      for (String name : ASKS) {
        String text = conf.apply(PREFIX + name);
        if (text != null) {
          all.put(name, text.length() > ASK_MAX ? text.substring(0, ASK_MAX) : text);
        }
      }
      return Collections.unmodifiableMap(all);
    }

    int whole(String key, String unset, int min, int max) {
      return read(key, unset, text -> {
        long n = text.matches("[0-9]{1,10}") ? Long.parseLong(text) : -1;
        if (n < min || n > max) {
          throw new IllegalArgumentException("must be a whole number from " + min + " to " + max);
        }
        return (int) n;
      }, min);
    }
  }
}
