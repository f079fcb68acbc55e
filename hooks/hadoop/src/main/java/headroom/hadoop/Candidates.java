package headroom.hadoop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;

/** Selects the map tasks that could be dropped. What is dropped of them the coordinators decide. */
final class Candidates {
  /** A request's body stays far below its bound of 1 MiB; the next round names more. */
  static final int MAX = 10_000;

  private Candidates() {}

  /**
   * The tasks that wait, the highest numbers first: the scheduler drops in this order, so the tasks that stay are the
   * input's beginning whatever the order of the questions. With running, also those that run, once the job has what it
   * promised. None where the floor leaves nothing to drop.
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
