package headroom.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** An action of an application, and the sample that its result was computed from. */
public final class Action implements Serializable {
  private static final long serialVersionUID = 1;

  private final int job;
  private final String name;
  private final List<Kept> kept;
  private final String exact;

  Action(int job, String name, List<Kept> kept, String exact) {
    this.job = job;
    this.name = name;
    this.kept = Collections.unmodifiableList(new ArrayList<>(kept));
    this.exact = exact;
  }

  /** Spark's number of its job. */
  public int job() {
    return job;
  }

  /** Where the program called it, as in Spark's UI: {@code count at words.py:31}. */
  public String name() {
    return name;
  }

  /** The shuffles that its result depends on, those before a checkpoint too. */
  public List<Kept> kept() {
    return kept;
  }

  /** Whether partitions are missing in its result. */
  public boolean thinned() {
    return kept.stream().anyMatch(k -> k.kept() < k.total());
  }

  /** Why nothing was dropped although something was to be; "" where it was, or was not. */
  public String exact() {
    return thinned() ? "" : exact;
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder("job " + job + " (" + name + ") is ");
    if (!thinned()) {
      return text + "exact" + (exact.isEmpty() ? "" : ": " + exact);
    }
    text.append("a sample:");
    kept.stream().filter(k -> k.kept() < k.total())
        .forEach(k -> text.append(" ").append(k.kept()).append(" of ").append(k.total()).append(" partitions of shuffle ").append(k.shuffle()));
    return text.toString();
  }
}
