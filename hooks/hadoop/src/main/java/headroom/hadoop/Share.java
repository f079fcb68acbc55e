package headroom.hadoop;

import java.util.Collections;
import java.util.Map;

/** The live maximum of one queue, and how its applications divide it. */
final class Share {
  /** The weight of an application to the fair scheduler, where nothing is said. */
  static final int WEIGHT = 1;

  final String queue;
  final long maxMb;
  final int maxVcores;

  /** Containers above a lower maximum are ended; otherwise they drain. */
  final boolean preempt;

  /** What each application may hold before others get more, in MB; empty where they divide the queue as ever. */
  final Map<String, Integer> applications;

  Share(String queue, long maxMb, int maxVcores, boolean preempt) {
    this(queue, maxMb, maxVcores, preempt, Collections.<String, Integer>emptyMap());
  }

  Share(String queue, long maxMb, int maxVcores, boolean preempt, Map<String, Integer> applications) {
    this.queue = queue;
    this.maxMb = maxMb;
    this.maxVcores = maxVcores;
    this.preempt = preempt;
    this.applications = applications;
  }

  /** Of one that is not named, because it has just come, it is that of the least. */
  int weightOf(String application) {
    Integer named = applications.get(application);
    if (named != null) {
      return named;
    }
    return applications.isEmpty() ? WEIGHT : Collections.min(applications.values());
  }

  boolean sameMax(Share other) {
    return other.maxMb == maxMb && other.maxVcores == maxVcores;
  }

  @Override
  public String toString() {
    return queue + " at most " + maxMb + " MB, " + maxVcores + " vcores";
  }
}
