package headroom.apps;

import java.lang.management.ManagementFactory;

/** Makes an attempt of a task take a given number of times as long, the start of its process included: for measurements. */
final class Slow {
  /** How many times as long, by tasks; the next attempts of all tasks after a semicolon: {@code 1,3.5,1.2;1,1,4}. */
  static final String TIMES = "headroom.apps.slow";

  private static final int LINES = 500;
  private static final double NANOS = 1e6;

  private final double times;
  private long begun;
  private int lines;

  Slow(double times) {
    this.times = times;
    long age = System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime();
    begun = System.nanoTime() - (long) (age * NANOS);
  }

  /** How many times as long an attempt takes; 1 where nothing is set. Where the list ends it begins again. */
  static double times(String list, int task, int attempt) {
    if (list.isEmpty()) {
      return 1;
    }
    String[] attempts = list.split(";");
    String[] tasks = attempts[attempt % attempts.length].split(",");
    return Double.parseDouble(tasks[task % tasks.length]);
  }

  /** Tells that a line was read; after some it pauses. */
  void line() throws InterruptedException {
    lines++;
    if (times > 1 && lines % LINES == 0) {
      Thread.sleep((long) ((times - 1) * (System.nanoTime() - begun) / NANOS));
      begun = System.nanoTime();
    }
  }
}
