package headroom.hadoop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Lays live maxima over the operator's own, and takes them away again.
 *
 * <p>The one idea: a queue's maximum that is not the very object that was laid there was set by somebody else, which
 * is a reload of the operator's file; so it is remembered as the operator's own, and covered again. Taking a live
 * maximum away puts back what was last remembered. Nothing is read from the file, so nothing about it can fail.
 *
 * @param <V> a maximum as the fair scheduler holds it
 */
final class ShareOverlay<V> {
  /** The queues of a fair scheduler. */
  interface Queues<V> {
    /** The maximum in force; null where there is no such queue. */
    V max(String queue);

    /** The operator's own maximum, with memory and vcores as the share says. */
    V with(V own, Share share);

    void setMax(String queue, V max);
  }

  private static final class Laid<V> {
    final Share share;
    final V own;
    final V live;

    Laid(Share share, V own, V live) {
      this.share = share;
      this.own = own;
      this.live = live;
    }
  }

  private final Queues<V> queues;
  private final Consumer<String> log;
  private final Map<String, Laid<V>> laid = new HashMap<>();
  private Set<String> missing = new HashSet<>();

  ShareOverlay(Queues<V> queues, Consumer<String> log) {
    this.queues = queues;
    this.log = log;
  }

  /** Makes these shares, and no others, the live ones. Returns those whose queue exists. */
  List<Share> lay(List<Share> shares) {
    Set<String> named = new HashSet<>();
    shares.forEach(s -> named.add(s.queue));
    new ArrayList<>(laid.keySet()).stream().filter(q -> !named.contains(q)).forEach(this::takeAway);

    Set<String> absent = new HashSet<>();
    List<Share> inForce = new ArrayList<>();
    for (Share s : shares) {
      if (lay(s)) {
        inForce.add(s);
      } else {
        absent.add(s.queue);
      }
    }
    absent.stream().filter(q -> !missing.contains(q)).forEach(q -> log.accept("unknown queue " + q + ": ignored"));
    missing = absent;
    return inForce;
  }

  private boolean lay(Share share) {
    V max = queues.max(share.queue);
    if (max == null) {
      laid.remove(share.queue);
      return false;
    }
    Laid<V> before = laid.get(share.queue);
    boolean covered = before != null && before.live == max;
    if (covered && before.share.sameMax(share)) {
      return true;
    }
    V own = covered ? before.own : max;
    V live = queues.with(own, share);
    queues.setMax(share.queue, live);
    laid.put(share.queue, new Laid<>(share, own, live));
    log.accept("live maximum: " + share);
    return true;
  }

  private void takeAway(String queue) {
    Laid<V> was = laid.remove(queue);
    // Where it is not ours any more, a reload has put the operator's own back already.
    if (queues.max(queue) == was.live) {
      queues.setMax(queue, was.own);
    }
    log.accept(queue + " : restored the maximum of the operator's file");
  }
}
