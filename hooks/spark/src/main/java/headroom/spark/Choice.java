package headroom.spark;

import java.util.BitSet;

/** Which partitions of a stage are computed: k of n, uniformly, without replacement, from a seed. */
final class Choice {
  /** Takes up what n - n * theta is off by, as in 50 - 50 * 0.1, before it is rounded up. */
  private static final double ROUNDING = 1e-9;

  private Choice() {}

  /** How many of n partitions are computed: ceil(n (1 - theta)), and at least one if there are any. */
  static int count(int n, double theta) {
    int k = (int) Math.ceil(n - n * theta - ROUNDING);
    return Math.min(n, Math.max(k, Math.min(n, 1)));
  }

  /**
   * What tells the choice of one stage from that of another. Input stages with the same number of partitions choose
   * alike: a job that reads its input in two stages (a self-join, GraphX) must see one sample. Inner stages choose
   * each for itself.
   */
  static long salt(boolean input, int n, int shuffle) {
    return input ? -1L - n : shuffle;
  }

  /** Floyd's sampling. The generator is written out so that every Java chooses the same. */
  static BitSet choose(int n, int k, long seed, long salt) {
    long state = mix(seed) ^ mix(~salt);
    BitSet kept = new BitSet(n);
    for (int j = n - k; j < n; j++) {
      state += 0x9e3779b97f4a7c15L;
      // By 63 bits: what the remainder prefers some numbers by is beyond notice.
      int t = (int) ((mix(state) >>> 1) % (j + 1));
      kept.set(kept.get(t) ? j : t);
    }
    return kept;
  }

  /** The finalizer of SplitMix64. */
  private static long mix(long z) {
    z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
    z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
    return z ^ (z >>> 31);
  }
}
