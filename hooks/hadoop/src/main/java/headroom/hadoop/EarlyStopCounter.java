package headroom.hadoop;

/** The part of a job that was not computed, in the job's counters. */
public enum EarlyStopCounter {
  /** Map tasks that were dropped. */
  DROPPED_TASKS,
  /** The input that they would have read, in bytes, as far as known. */
  DROPPED_BYTES
}
