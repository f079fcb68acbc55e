package headroom.hadoop;

/** A map task as a policy of speculation is told of it. */
final class TaskView {
  final int number;

  /** The length of its input split; 0 where it is unknown. */
  final long bytes;

  /** It has a result. */
  final boolean done;

  /** How long the attempt took that gave the result, in ms; 0 without one. */
  final long tookMs;

  /** Attempts that hold a container. */
  final int running;

  /** An attempt of it waits for a container. */
  final boolean waits;

  /** How long its attempt that is furthest has run, in ms, how far that is, 0 to 1, and on which NodeManager (host:port). */
  final long elapsedMs;

  final double progress;
  final String node;

  TaskView(int number, long bytes, boolean done, long tookMs, int running, boolean waits, long elapsedMs, double progress,
      String node) {
    this.number = number;
    this.bytes = bytes;
    this.done = done;
    this.tookMs = tookMs;
    this.running = running;
    this.waits = waits;
    this.elapsedMs = elapsedMs;
    this.progress = progress;
    this.node = node;
  }
}
