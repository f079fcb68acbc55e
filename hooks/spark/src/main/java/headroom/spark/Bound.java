package headroom.spark;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** When the map stages of an application may end before all of their partitions are done, by its owner's settings. */
final class Bound {
  /** None: stages run to their ends. */
  static final Bound NONE = new Bound(0, 0, 1);

  /**
   * The part of the deadline that is left for what follows the stages that read the input: reduces, output. The paper takes
   * it from past jobs; a driver knows none.
   */
  static final double RESERVE = 0.1;

  private static final Pattern DURATION = Pattern.compile("([0-9]{1,9}(?:\\.[0-9]{1,9})?)(ms|s|m|h)");

  /** 0 for none. */
  private final long deadlineMs;

  /** The part of the partitions that may be missing as soon as the others are done. */
  private final double error;

  /** The least part of them that must be done. */
  private final double least;

  /** {@code deadlineMs} is 0 and {@code error} 0 for none, {@code minTasks} is 1 for all of them. */
  Bound(long deadlineMs, double error, double minTasks) {
    this.deadlineMs = deadlineMs;
    this.error = error;
    // The greater of the two is the floor; a job with an error bound alone has no other.
    this.least = error == 0 ? minTasks : Math.max(1 - error, minTasks < 1 ? minTasks : 0);
  }

  boolean set() {
    return least < 1 && (error > 0 || deadlineMs > 0);
  }

  /** The part of its partitions that a stage may leave out if it ends now. */
  double end(long elapsedMs) {
    boolean due = deadlineMs > 0 && elapsedMs >= deadlineMs * (1 - RESERVE);
    return error > 0 || due ? 1 - least : 0;
  }

  /** Reads 10m, 1h30m, 250ms. */
  static long durationMs(String text) {
    Matcher m = DURATION.matcher(text);
    double ms = 0;
    int at = 0;
    for (; m.find() && m.start() == at; at = m.end()) {
      ms += Double.parseDouble(m.group(1)) * unitMs(m.group(2));
    }
    if (at == 0 || at != text.length() || ms < 1) {
      throw new IllegalArgumentException("a duration of at least 1ms has a unit: 250ms, 10s, 5m, 1h30m");
    }
    return (long) ms;
  }

  private static double unitMs(String unit) {
    switch (unit) {
      case "ms":
        return 1;
      case "s":
        return 1_000;
      case "m":
        return 60_000;
      default:
        return 3_600_000;
    }
  }

  /** Reads 5% and 0.05. */
  static double part(String text) {
    double d = text.endsWith("%") ? Double.parseDouble(text.substring(0, text.length() - 1)) / 100 : Double.parseDouble(text);
    if (!(d >= 0 && d <= 1)) {
      throw new IllegalArgumentException("use a fraction such as 5% or 0.05");
    }
    return d;
  }

  /** An error bound: 1 would be no result at all. */
  static double error(String text) {
    double d = part(text);
    if (d == 1) {
      throw new IllegalArgumentException("an error bound must be at least 0 and below 100%");
    }
    return d;
  }
}
