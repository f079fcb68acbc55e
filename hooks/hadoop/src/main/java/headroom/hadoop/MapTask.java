package headroom.hadoop;

/** A map task of the job at one moment. */
final class MapTask {
  /** Its state. */
  enum State {
    /** Not scheduled yet: to kill it now would be more than the job bears while it is set up. */
    NEW,
    /** No attempt holds a container, none has failed, none ever had a result. */
    WAITING,
    /** An attempt runs or is about to. */
    BEGUN,
    /** It has a result, or had one that a reduce may have read. */
    RESULT,
    /** Killed, and all its attempts have ended. */
    KILLED,
    /** Failed for good, and the job with it. */
    FAILED
  }

  /** From 0, as in the task's id. */
  final int number;

  /** The length of its input split; 0 where it is unknown. */
  final long bytes;

  final State state;

  MapTask(int number, long bytes, State state) {
    this.number = number;
    this.bytes = bytes;
    this.state = state;
  }
}
