package headroom.hadoop;

/** What of a job was not computed. Whoever reads the job's result finds it among the job's counters. */
public enum EarlyStopCounter {
  /** Map tasks that were dropped. */
  DROPPED_TASKS,
  /** The input that they would have read, in bytes; what is unknown is not in it. */
  DROPPED_BYTES
}
