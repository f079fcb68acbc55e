package headroom.hadoop;

import java.math.BigDecimal;
import java.util.Collection;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The requests of an application in its tags: {@code headroom-deadline:10m}, with {@code headroom-error:5%}, {@code
 * headroom-tasks:40} and {@code headroom-queue}.
 */
final class Wishes {
  private static final Pattern TIME = Pattern.compile("(?:([0-9]{1,6})h)?(?:([0-9]{1,8})m)?(?:([0-9]{1,10})s)?");

  private static final Pattern PART = Pattern.compile("([0-9]{1,3}(?:\\.[0-9]{1,9})?)(%?)");

  /** From the submission, in s; 0 where the application has none, and is asked about nobody. */
  final long deadlineS;

  /** The part of its tasks that its result may lack. */
  final double error;

  /** The most containers that it can use at one time; 0: not said. */
  final int tasks;

  /** It would rather wait than be refused. */
  final boolean waits;

  /** What was not understood, in words; empty where all was. */
  final String wrong;

  private Wishes(long deadlineS, double error, int tasks, boolean waits, String wrong) {
    this.deadlineS = deadlineS;
    this.error = error;
    this.tasks = tasks;
    this.waits = waits;
    this.wrong = wrong;
  }

  /** YARN has made all tags lower case; an application without any may have null. */
  static Wishes of(Collection<String> tags) {
    if (tags == null) {
      return new Wishes(0, 0, 0, false, "");
    }
    long deadlineS = 0;
    double error = 0;
    int tasks = 0;
    boolean waits = false;
    for (String tag : tags) {
      try {
        if (tag == null) {
          continue;
        }
        if (tag.startsWith("headroom-deadline:")) {
          deadlineS = seconds(value(tag));
        } else if (tag.startsWith("headroom-error:")) {
          error = part(value(tag));
        } else if (tag.startsWith("headroom-tasks:")) {
          tasks = count(value(tag));
        } else if (tag.equals("headroom-queue")) {
          waits = true;
        }
      } catch (IllegalArgumentException e) {
        return new Wishes(0, 0, 0, false, "tag " + tag + " is invalid; write headroom-deadline:1h30m, headroom-error:5%, headroom-tasks:40");
      }
    }
    return new Wishes(deadlineS, error, tasks, waits, "");
  }

  private static String value(String tag) {
    return tag.substring(tag.indexOf(':') + 1);
  }

  private static int count(String text) {
    int n = Integer.parseUnsignedInt(text);
    if (n < 0) { // it is 2^31 or more
      throw new IllegalArgumentException(text);
    }
    return n;
  }

  private static long seconds(String text) {
    Matcher m = TIME.matcher(text);
    if (!m.matches()) {
      throw new IllegalArgumentException(text);
    }
    long s = number(m.group(1)) * 3600 + number(m.group(2)) * 60 + number(m.group(3));
    if (s == 0) {
      throw new IllegalArgumentException(text);
    }
    return s;
  }

  private static long number(String digits) {
    return digits == null ? 0 : Long.parseLong(digits);
  }

  private static double part(String text) {
    Matcher m = PART.matcher(text);
    double x = m.matches() ? new BigDecimal(m.group(1)).doubleValue() / (m.group(2).isEmpty() ? 1 : 100) : 1;
    if (x >= 1) {
      throw new IllegalArgumentException(text);
    }
    return x;
  }
}
