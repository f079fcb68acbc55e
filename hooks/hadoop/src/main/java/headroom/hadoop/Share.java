package headroom.hadoop;

/** The live maximum of one queue. */
final class Share {
  final String queue;
  final long maxMb;
  final int maxVcores;

  /** Containers above a lower maximum are ended; otherwise they drain. */
  final boolean preempt;

  Share(String queue, long maxMb, int maxVcores, boolean preempt) {
    this.queue = queue;
    this.maxMb = maxMb;
    this.maxVcores = maxVcores;
    this.preempt = preempt;
  }

  boolean sameMax(Share other) {
    return other.maxMb == maxMb && other.maxVcores == maxVcores;
  }

  @Override
  public String toString() {
    return queue + " at most " + maxMb + " MB, " + maxVcores + " vcores";
  }
}
