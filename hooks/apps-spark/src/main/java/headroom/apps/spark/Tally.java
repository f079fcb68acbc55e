package headroom.apps.spark;

import java.io.Serializable;

/** A count over partitions and the sum of the squares of each one's part, which its error is told by. */
final class Tally implements Serializable {
  private static final long serialVersionUID = 1;

  final double sum;
  final double squares;

  private Tally(double sum, double squares) {
    this.sum = sum;
    this.squares = squares;
  }

  /** Of one partition. */
  static Tally of(long count) {
    return new Tally(count, (double) count * count);
  }

  Tally plus(Tally o) {
    return new Tally(sum + o.sum, squares + o.squares);
  }
}
