package headroom.spark;

import java.util.Locale;

/** Which shuffle-map stages are thinned. */
enum Stages {
  /** Those that read the job's input: no shuffle below them within their stage. */
  INPUT,
  /** Every one, as in the paper. Ratios compound, and a drop behind a keyed shuffle loses whole keys. */
  ALL,
  /** None: progress and control only. */
  NONE;

  static Stages of(String word) {
    for (Stages s : values()) {
      if (s.word().equals(word)) {
        return s;
      }
    }
    throw new IllegalArgumentException("must be input, all or none");
  }

  String word() {
    return name().toLowerCase(Locale.ROOT);
  }
}
