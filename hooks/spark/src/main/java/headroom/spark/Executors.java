package headroom.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The registered executors, and which of them can be removed without a loss. Not safe for use by several threads. */
final class Executors {
  /** One executor, as it is now. */
  static final class View {
    final String id;

    /** Nothing runs on it. */
    final boolean idle;

    /** It has map results that an action under way needs. */
    final boolean holds;

    /** How long its running tasks have run, together. */
    final long runningMs;

    /** How long the results took that it holds. */
    final long heldMs;

    View(String id, boolean idle, boolean holds, long runningMs, long heldMs) {
      this.id = id;
      this.idle = idle;
      this.holds = holds;
      this.runningMs = runningMs;
      this.heldMs = heldMs;
    }
  }

  private static final class One {
    final String host;
    final int cores;

    /** When each attempt that runs began, by its number. */
    final Map<Long, Long> running = new HashMap<>();

    /** How long the results took that it holds, by their map stages, while actions need them. */
    final Map<Integer, Long> holds = new HashMap<>();

    One(String host, int cores) {
      this.host = host;
      this.cores = cores;
    }

    View view(String id, long nowMs) {
      long runs = running.values().stream().mapToLong(begin -> Math.max(0, nowMs - begin)).sum();
      long held = holds.values().stream().mapToLong(Long::longValue).sum();
      return new View(id, running.isEmpty(), !holds.isEmpty(), runs, held);
    }
  }

  private final Map<String, One> all = new LinkedHashMap<>();

  /** Attempts that run now, by the host of their executor. */
  private final Map<String, Integer> runningOn = new TreeMap<>();

  void added(String id, String host, int cores) {
    all.put(id, new One(host, cores));
  }

  void removed(String id) {
    all.remove(id);
  }

  void taskBegins(String id, String host, long task, long nowMs) {
    runningOn.merge(host, 1, Integer::sum);
    One e = all.get(id);
    if (e != null) {
      e.running.put(task, nowMs);
    }
  }

  void taskEnds(String id, String host, long task) {
    runningOn.computeIfPresent(host, (h, n) -> n > 1 ? n - 1 : null);
    One e = all.get(id);
    if (e != null) {
      e.running.remove(task);
    }
  }

  /** A map task of this stage has left its result there. */
  void keeps(String id, int stage, long ms) {
    One e = all.get(id);
    if (e != null) {
      e.holds.merge(stage, ms, Long::sum);
    }
  }

  /** No action needs these stages any more. */
  void release(Set<Integer> stages) {
    all.values().forEach(e -> e.holds.keySet().removeAll(stages));
  }

  int size() {
    return all.size();
  }

  /** Oldest first. */
  List<View> views(long nowMs) {
    List<View> views = new ArrayList<>();
    all.forEach((id, e) -> views.add(e.view(id, nowMs)));
    return views;
  }

  void into(ObjectNode o) {
    ObjectNode running = o.putObject("running_on");
    runningOn.forEach(running::put);
    Map<String, Integer> cores = new TreeMap<>();
    all.values().forEach(e -> cores.merge(e.host, e.cores, Integer::sum));
    ObjectNode on = o.putObject("cores_on");
    cores.forEach(on::put);
    o.put("executors", all.size());
  }
}
