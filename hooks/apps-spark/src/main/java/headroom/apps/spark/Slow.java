package headroom.apps.spark;

import java.util.Iterator;
import org.apache.spark.TaskContext;

/** Rows of a partition, of which an attempt takes a given number of times as long: for measurements. */
final class Slow implements Iterator<String> {
  private static final int ROWS = 20;
  private static final double NANOS = 1e6;

  private final Iterator<String> rows;
  private final double times;
  private long begun = System.nanoTime();
  private int count;

  private Slow(Iterator<String> rows, double times) {
    this.rows = rows;
    this.times = times;
  }

  /** The rows of the task that runs; list is as {@link #times} has it. */
  static Iterator<String> rows(Iterator<String> rows, String list) {
    TaskContext task = TaskContext.get();
    return new Slow(rows, times(list, task.partitionId(), task.attemptNumber()));
  }

  /**
   * How many times as long an attempt takes; 1 for an empty list. A list has a number for each task, and the next attempts
   * of all tasks after a semicolon: {@code 1,3.5,1.2;1,1,4}. Where it ends it begins again.
   */
  static double times(String list, int task, int attempt) {
    if (list.isEmpty()) {
      return 1;
    }
    String[] attempts = list.split(";");
    String[] tasks = attempts[attempt % attempts.length].split(",");
    return Double.parseDouble(tasks[task % tasks.length]);
  }

  @Override
  public boolean hasNext() {
    return rows.hasNext();
  }

  @Override
  public String next() {
    count++;
    if (times > 1 && count % ROWS == 0) {
      pause((long) ((times - 1) * (System.nanoTime() - begun) / NANOS));
      begun = System.nanoTime();
    }
    return rows.next();
  }

  private static void pause(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task is killed", e);
    }
  }
}
