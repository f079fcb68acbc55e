package headroom.spark;

import java.io.Serializable;

/** How many partitions of the stage before one shuffle were computed. */
public final class Kept implements Serializable {
  private static final long serialVersionUID = 1;

  private final int shuffle;
  private final int total;
  private final int kept;
  private final double theta;
  private final long seed;
  private final boolean input;
  private final String why;

  /**
   * One shuffle's choice.
   *
   * @param shuffle Spark's number of it
   * @param total the partitions that the stage would compute
   * @param kept those that it does
   * @param theta the drop ratio, 0 where the stage runs exactly
   * @param seed what the choice was made from
   * @param input whether the stage reads the job's input
   * @param why why all are computed although some were to be dropped, or ""
   */
  public Kept(int shuffle, int total, int kept, double theta, long seed, boolean input, String why) {
    this.shuffle = shuffle;
    this.total = total;
    this.kept = kept;
    this.theta = theta;
    this.seed = seed;
    this.input = input;
    this.why = why;
  }

  /** Spark's number of the shuffle. */
  public int shuffle() {
    return shuffle;
  }

  /** The partitions that the stage would compute. */
  public int total() {
    return total;
  }

  /** Those that it computes. */
  public int kept() {
    return kept;
  }

  /** The drop ratio, 0 where the stage runs exactly. */
  public double theta() {
    return theta;
  }

  /** What the choice was made from. */
  public long seed() {
    return seed;
  }

  Kept less(int partitions) {
    return new Kept(shuffle, total, kept - partitions, theta, seed, input, why);
  }

  /** Whether the stage reads the job's input. */
  public boolean input() {
    return input;
  }

  /** Why all partitions are computed although some were to be dropped; "" where they are not, or were not. */
  public String why() {
    return why;
  }

  /** What a count or a sum behind this stage is multiplied by: total / kept. */
  public double factor() {
    return kept == 0 ? 1 : (double) total / kept;
  }

  @Override
  public String toString() {
    return "shuffle " + shuffle + ": " + kept + " of " + total + " partitions (" + (input ? "input" : "inner")
        + " stage, theta " + theta + ", seed " + seed + (why.isEmpty() ? "" : ", exact: " + why) + ")";
  }
}
