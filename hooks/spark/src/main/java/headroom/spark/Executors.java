package headroom.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/** The registered executors, and which of them could go without a loss. Not safe for use by several threads. */
final class Executors {
  /** One executor, as it is now. */
  static final class View {
    final String id;

    /** Nothing runs on it. */
    final boolean idle;

    /** It has map results that an action under way needs. */
    final boolean holds;

    View(String id, boolean idle, boolean holds) {
      this.id = id;
      this.idle = idle;
      this.holds = holds;
    }
  }

  private static final class One {
    final String host;
    final int cores;
    int running;

    /** Map stages whose results it holds, while their actions run. */
    final Set<Integer> holds = new HashSet<>();

    One(String host, int cores) {
      this.host = host;
      this.cores = cores;
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

  void taskBegins(String id, String host) {
    runningOn.merge(host, 1, Integer::sum);
    One e = all.get(id);
    if (e != null) {
      e.running++;
    }
  }

  void taskEnds(String id, String host) {
    runningOn.computeIfPresent(host, (h, n) -> n > 1 ? n - 1 : null);
    One e = all.get(id);
    if (e != null) {
      e.running = Math.max(0, e.running - 1);
    }
  }

  /** A map task of this stage has left its result there. */
  void keeps(String id, int stage) {
    One e = all.get(id);
    if (e != null) {
      e.holds.add(stage);
    }
  }

  /** No action needs these stages any more. */
  void release(Set<Integer> stages) {
    all.values().forEach(e -> e.holds.removeAll(stages));
  }

  int size() {
    return all.size();
  }

  /** Oldest first. */
  List<View> views() {
    List<View> views = new ArrayList<>();
    all.forEach((id, e) -> views.add(new View(id, e.running == 0, !e.holds.isEmpty())));
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
