package headroom.apps;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;

/** The N most frequent words so far: by count, and by name where counts are equal, so that the answer is one. */
final class Ranking {
  /** A word and how often it occurs. */
  static final class Entry {
    final String word;
    final long count;

    Entry(String word, long count) {
      this.word = word;
      this.count = count;
    }
  }

  private final int size;
  private final TreeSet<Entry> best =
      new TreeSet<>(Comparator.comparingLong((Entry e) -> -e.count).thenComparing(e -> e.word));

  Ranking(int size) {
    if (size < 1) {
      throw new IllegalArgumentException("a ranking of " + size + " words: at least 1 is needed");
    }
    this.size = size;
  }

  void add(String word, long count) {
    best.add(new Entry(word, count));
    if (best.size() > size) {
      best.pollLast();
    }
  }

  /** The most frequent first. */
  List<Entry> entries() {
    return new ArrayList<>(best);
  }
}
