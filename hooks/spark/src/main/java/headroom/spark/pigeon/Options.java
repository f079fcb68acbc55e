package headroom.spark.pigeon;

import headroom.client.Pinned;
import headroom.client.PinnedFiles;
import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What the master's address and Spark's conf say. What is wrong with them ends the application at its start. */
final class Options {
  /** Of the conf, or a local property of a job ({@code SparkContext.setLocalProperty}): high or low. */
  static final String PRIORITY = "spark.headroom.priority";

  /** Spark's own standalone Master, which starts the executors: spark://HOST:PORT. */
  static final String EXECUTORS = "spark.headroom.pigeon.executors";

  /** HOST=NODE,...: the names of nodes by the hosts of executors, where these are not the same. */
  static final String NODES = "spark.headroom.pigeon.nodes";

  /** How long no master may answer before the application is refused at its start, or its jobs fail later on. */
  static final String PATIENCE_S = "spark.headroom.pigeon.patience-s";

  private static final String CA = "spark.headroom.ca";

  /** Files of the certificate that masters know the application's owner by, and of its key. */
  private static final String CERT = "spark.headroom.cert";

  private static final String KEY = "spark.headroom.key";
  private static final Pattern MASTER = Pattern.compile("(?:spark-)?pigeon://(.+)");
  private static final String STANDALONE = "spark://";
  private static final int MASTERS_MAX = 1000;

  final List<URL> masters = new ArrayList<>();
  final String[] executors;
  final Map<String, String> nodes = new HashMap<>();
  final boolean high;
  final int patienceMs;

  /** Null in the clear. */
  final PinnedFiles tls;

  private Options(String master, UnaryOperator<String> conf) {
    String ca = or(conf, CA, "");
    try {
      tls = ca.isEmpty() ? null : Pinned.by(ca, or(conf, CERT, ""), or(conf, KEY, ""));
    } catch (IOException e) {
      throw new IllegalArgumentException(CA + ", " + CERT + ", " + KEY + ": " + e.getMessage(), e);
    }
    Matcher m = MASTER.matcher(master);
    String[] all = m.matches() ? m.group(1).split(",", -1) : new String[0];
    if (all.length == 0 || all.length > MASTERS_MAX) {
      throw new IllegalArgumentException("spark.master=" + master + ": it must look like pigeon://HOST:PORT,HOST:PORT with at most "
          + MASTERS_MAX + " masters");
    }
    for (String address : all) {
      masters.add(url(master, address));
    }
    String base = or(conf, EXECUTORS, "");
    if (!base.matches(STANDALONE + ".+:[0-9]+")) {
      throw new IllegalArgumentException(EXECUTORS + "=" + base + ": must be the standalone Master that starts executors, spark://HOST:PORT");
    }
    executors = Arrays.stream(base.substring(STANDALONE.length()).split(",")).map(a -> STANDALONE + a).toArray(String[]::new);
    for (String pair : or(conf, NODES, "").split(",")) {
      String[] words = pair.split("=");
      if (words.length == 2) {
        nodes.put(words[0].trim(), words[1].trim());
      } else if (!pair.trim().isEmpty()) {
        throw new IllegalArgumentException(NODES + ": " + pair + ": must be HOST=NODE,HOST=NODE");
      }
    }
    high = high(or(conf, PRIORITY, "low"));
    patienceMs = 1000 * whole(PATIENCE_S, or(conf, PATIENCE_S, "60"), 1, 3600);
    if (!or(conf, "spark.task.cpus", "1").equals("1")) {
      throw new IllegalArgumentException("spark.task.cpus: a slot is one core, so a task has one");
    }
  }

  static Options of(String master, UnaryOperator<String> conf) {
    return new Options(master, conf);
  }

  /** Whether the address is one of ours. */
  static boolean names(String master) {
    return master.startsWith("pigeon://") || master.startsWith("spark-pigeon://");
  }

  /** Reads a priority. */
  static boolean high(String text) {
    if (!text.equals("high") && !text.equals("low")) {
      throw new IllegalArgumentException(PRIORITY + "=" + text + ": must be high or low");
    }
    return text.equals("high");
  }

  private static String or(UnaryOperator<String> conf, String key, String unset) {
    String set = conf.apply(key);
    return set == null ? unset : set.trim();
  }

  private URL url(String master, String address) {
    try {
      URL url = new URL((tls == null ? "http://" : "https://") + address);
      if (url.getHost().isEmpty() || url.getPort() <= 0 || !url.getPath().isEmpty()) {
        throw new MalformedURLException("no HOST:PORT");
      }
      return url;
    } catch (MalformedURLException e) {
      throw new IllegalArgumentException("spark.master=" + master + ": " + address + " must look like HOST:PORT", e);
    }
  }

  private static int whole(String key, String text, int min, int max) {
    int n = text.matches("[0-9]{1,9}") ? Integer.parseInt(text) : -1;
    if (n < min || n > max) {
      throw new IllegalArgumentException(key + "=" + text + ": must be a whole number from " + min + " to " + max);
    }
    return n;
  }
}
