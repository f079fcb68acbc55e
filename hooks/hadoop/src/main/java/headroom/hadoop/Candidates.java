package headroom.hadoop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;

/** Selects the map tasks that could be dropped. The coordinators decide which of them are. */
final class Candidates {
  /** A request's body stays far below its bound of 1 MiB; the next round names more. */
  static final int MAX = 10_000;

  private Candidates() {}

  /**
   * The waiting tasks, the highest numbers first: the scheduler drops in this order, so the remaining tasks are the
   * start of the input whatever the order of the requests. With running, also the running ones, once the job has what
   * it promised. None if the floor permits no drops.
   */
  static List<MapTask> of(Collection<MapTask> tasks, Stop stop, boolean running) {
    if (!stop.inForce || tasks.size() - stop.dropped.size() <= stop.minTasks) {
      return new ArrayList<>();
    }
    return tasks.stream()
        .filter(t -> t.state == MapTask.State.WAITING || (running && stop.over && t.state == MapTask.State.BEGUN))
        .filter(t -> !stop.dropped.contains(t.number))
        .sorted(Comparator.comparingInt((MapTask t) -> t.number).reversed())
        .limit(MAX)
        .collect(Collectors.toList());
  }
}
