package headroom.spark.pigeon;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;

/**
 * How many slots are wanted of which group, and which are held: the distributor's state. It knows no Spark and no network, and takes
 * the time as milliseconds of a clock that never goes back.
 */
final class Ledger {
  /** After this without an active master, what was wanted of a group is wanted of the others. */
  static final long SILENCE_MS = 5_000;

  /** How long a grant may wait for a free core of an executor on its node before it is given back. */
  static final long UNUSED_MS = 1_000;

  /** How long a group is then asked for nothing, so that it does not grant the same slot over and over. */
  static final long PAUSE_MS = 500;

  /** One group, whichever master is active. */
  private static final class Group {
    final int[] want = new int[2];

    /** Held grants of it, used or not. */
    final Set<Grant> held = new LinkedHashSet<>();

    /** Number of the address whose master is active; -1 for none. */
    int active = -1;

    long heard;
    long pausedUntil;
    String instance = "";
    long seen;
  }

  private final Random random;
  private final Map<String, Group> groups = new TreeMap<>();
  private final Map<Integer, Group> byAddress = new HashMap<>();
  private final Map<Long, Grant> byTask = new HashMap<>();
  private long grants;
  private long version;

  Ledger(Random random) {
    this.random = random;
  }

  /** Changes whenever there is something to report. */
  synchronized long version() {
    return version;
  }

  /** How many grants there have been. */
  synchronized long grants() {
    return grants;
  }

  /** Whether the master at this address is the active one of its group. */
  synchronized boolean active(int address) {
    return activeAt(address) != null;
  }

  /** The group whose active master is at this address; null for none. */
  private Group activeAt(int address) {
    Group g = byAddress.get(address);
    return g != null && g.active == address ? g : null;
  }

  /** Takes an answer of the master at this address; reports whether there are new grants. */
  synchronized boolean heard(int address, Answer a, long now) {
    Group g = byAddress.get(address);
    if (!a.active) {
      if (g != null && g.active == address) {
        g.active = -1;
      }
      return false;
    }
    g = groups.computeIfAbsent(a.group, name -> new Group());
    byAddress.put(address, g);
    if (g.active != address && g.active >= 0 && now - g.heard < SILENCE_MS / 2) {
      return false; // the group's other master says so too: the one that is known stays until it is silent or steps down
    }
    if (g.active != address || !a.instance.equals(g.instance)) {
      g.active = address;
      if (!a.instance.equals(g.instance)) {
        g.instance = a.instance;
        g.seen = 0;
      }
      change();
    }
    g.heard = now;
    boolean more = false;
    for (Grant s : a.slots) {
      if (s.instance.equals(g.instance) && s.number > g.seen) {
        g.seen = s.number;
        g.held.add(s);
        g.want[kind(s.high)] = Math.max(0, g.want[kind(s.high)] - 1);
        grants++;
        more = true;
      }
    }
    if (more) {
      change();
    }
    return more;
  }

  /** What a report to the master at this address says, JSON of SlotReport; null where it is not the active one. */
  synchronized String report(int address, String application, long now) {
    Group g = activeAt(address);
    if (g == null) {
      return null;
    }
    boolean paused = now < g.pausedUntil;
    ObjectNode o = JsonNodeFactory.instance.objectNode().put("application", application)
        .put("wantHigh", paused ? 0 : g.want[1]).put("wantLow", paused ? 0 : g.want[0]).put("instance", g.instance).put("seen", g.seen);
    ArrayNode held = o.putArray("held");
    for (Grant s : g.held) {
      held.addObject().put("instance", s.instance).put("number", s.number).put("node", s.node).put("high", s.high).put("proof", s.proof);
    }
    return o.toString();
  }

  /** What Await says to the master at this address; a look at its role where it is not the active one. */
  synchronized String await(int address, String application, int waitMs) {
    Group g = activeAt(address);
    return JsonNodeFactory.instance.objectNode().put("application", application).put("instance", g == null ? "" : g.instance)
        .put("seen", g == null ? 0 : g.seen).put("waitMs", g == null ? 0 : waitMs).toString();
  }

  /** Makes what is wanted and what is granted without use as much as tasks wait, {low, high}. The rest is given back. */
  synchronized void want(int[] waiting, long now) {
    List<Group> live = new ArrayList<>();
    for (Group g : groups.values()) {
      if (g.active >= 0 && now - g.heard < SILENCE_MS) {
        live.add(g);
      } else {
        g.want[0] = 0;
        g.want[1] = 0;
      }
    }
    for (int k = 0; k < 2; k++) {
      int unused = giveBack(k, waiting[k], now);
      int wanted = 0;
      for (Group g : live) {
        wanted += g.want[k];
      }
      int more = waiting[k] - unused - wanted;
      if (more > 0) {
        split(live, k, more);
      } else if (more < 0) {
        withdraw(live, k, -more);
      }
    }
  }

  /** Gives back grants beyond so many, and those that have waited too long; returns how many are left. */
  private int giveBack(int k, int most, long now) {
    int kept = 0;
    for (Group g : groups.values()) {
      for (Iterator<Grant> it = g.held.iterator(); it.hasNext(); ) {
        Grant s = it.next();
        if (s.executor != null || kind(s.high) != k) {
          continue;
        }
        boolean late = now - s.since > UNUSED_MS;
        if (late || kept >= most) {
          it.remove();
          change();
          if (late && kept < most) {
            g.pausedUntil = now + PAUSE_MS;
          }
        } else {
          kept++;
        }
      }
    }
    return kept;
  }

  /** Splits evenly, with the remainder to groups by chance. */
  private void split(List<Group> live, int k, int n) {
    if (live.isEmpty()) {
      return;
    }
    List<Group> order = new ArrayList<>(live);
    Collections.shuffle(order, random);
    for (int i = 0; i < order.size(); i++) {
      order.get(i).want[k] += n / order.size() + (i < n % order.size() ? 1 : 0);
    }
    change();
  }

  private void withdraw(List<Group> live, int k, int n) {
    List<Group> order = new ArrayList<>(live);
    for (int left = n; left > 0; ) {
      order.sort(Comparator.comparingInt(g -> -g.want[k]));
      int least = order.get(0).want[k];
      if (least == 0) {
        break;
      }
      int step = Math.min(least, Math.max(1, left / order.size()));
      order.get(0).want[k] -= step;
      left -= step;
    }
    change();
  }

  /** Unused grants of a priority, how many on each node. */
  synchronized Map<String, Integer> unused(boolean high) {
    Map<String, Integer> byNode = new HashMap<>();
    for (Group g : groups.values()) {
      for (Grant s : g.held) {
        if (s.executor == null && s.high == high) {
          byNode.merge(s.node, 1, Integer::sum);
        }
      }
    }
    return byNode;
  }

  /** Gives a task the oldest unused grant of its priority on the node where it begins. */
  synchronized void begin(long task, String executor, String node, boolean high) {
    for (Group g : groups.values()) {
      for (Grant s : g.held) {
        if (s.executor == null && s.high == high && s.node.equals(node)) {
          s.executor = executor;
          byTask.put(task, s);
          return;
        }
      }
    }
    throw new IllegalStateException("task " + task + " began on " + node + " without a grant");
  }

  /** Gives back the slot of a task that has ended; a second time does nothing. */
  synchronized void end(long task) {
    Grant s = byTask.remove(task);
    if (s != null) {
      groups.values().forEach(g -> g.held.remove(s));
      change();
    }
  }

  /** Gives back the slots of the tasks of an executor that is lost. */
  synchronized void lost(String executor) {
    List<Long> tasks = new ArrayList<>();
    byTask.forEach((task, s) -> {
      if (executor.equals(s.executor)) {
        tasks.add(task);
      }
    });
    tasks.forEach(this::end);
  }

  /** When an active master last answered; 0 for never. */
  synchronized long lastHeard() {
    long last = 0;
    for (Group g : groups.values()) {
      last = Math.max(last, g.heard);
    }
    return last;
  }

  /** Starts the time without an active master anew, after what waited for one has been given up. */
  synchronized void giveUp(long now) {
    groups.values().forEach(g -> g.heard = now - SILENCE_MS);
  }

  /** Whether there are grants that wait for a core. */
  synchronized boolean unused() {
    return groups.values().stream().flatMap(g -> g.held.stream()).anyMatch(s -> s.executor == null);
  }

  private void change() {
    version++;
    notifyAll();
  }

  private static int kind(boolean high) {
    return high ? 1 : 0;
  }
}
