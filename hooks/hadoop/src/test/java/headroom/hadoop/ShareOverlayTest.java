// Claims: live maxima lie on top of the operator's own, come back after a reload, and leave nothing behind when they
// are taken away.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class ShareOverlayTest {
  /** Queues whose maximum is a list, which is told apart by identity as the fair scheduler's are. */
  private static final class FakeQueues implements ShareOverlay.Queues<List<String>> {
    final Map<String, List<String>> max = new TreeMap<>();

    @Override
    public List<String> max(String queue) {
      return max.get(queue);
    }

    @Override
    public List<String> with(List<String> own, Share share) {
      return new ArrayList<>(Arrays.asList(own.get(0), String.valueOf(share.maxMb)));
    }

    @Override
    public void setMax(String queue, List<String> value) {
      max.put(queue, value);
    }

    void reload(String queue, String value) {
      max.put(queue, new ArrayList<>(Collections.singletonList(value)));
    }
  }

  private final FakeQueues queues = new FakeQueues();
  private final List<String> log = new ArrayList<>();
  private final ShareOverlay<List<String>> overlay = new ShareOverlay<>(queues, log::add);

  ShareOverlayTest() {
    queues.reload("root.a", "own");
    queues.reload("root.b", "own");
  }

  private static Share share(String queue, long mb) {
    return new Share(queue, mb, 1, false);
  }

  private int lay(Share... shares) {
    return overlay.lay(Arrays.asList(shares)).size();
  }

  @Test
  void whatIsNotNamedKeepsItsOwn() {
    lay(share("root.a", 5));
    assertEquals("{root.a=[own, 5], root.b=[own]}", queues.max.toString());
    lay(share("root.a", 7));
    assertEquals("{root.a=[own, 7], root.b=[own]}", queues.max.toString());
    lay(share("root.b", 7));
    assertEquals("{root.a=[own], root.b=[own, 7]}", queues.max.toString());
    lay();
    assertEquals("{root.a=[own], root.b=[own]}", queues.max.toString());
  }

  @Test
  void aReloadIsCoveredAgainAndRemembered() {
    lay(share("root.a", 5), share("root.b", 5));
    queues.reload("root.a", "new");
    lay(share("root.a", 5), share("root.b", 5));
    assertEquals("{root.a=[new, 5], root.b=[own, 5]}", queues.max.toString());
    lay();
    assertEquals("{root.a=[new], root.b=[own]}", queues.max.toString());
  }

  @Test
  void aReloadJustBeforeTheEndIsNotUndone() {
    lay(share("root.a", 5));
    queues.reload("root.a", "new");
    lay();
    assertEquals("[new]", queues.max.get("root.a").toString());
  }

  @Test
  void theSameShareChangesNothing() {
    lay(share("root.a", 5));
    List<String> before = queues.max.get("root.a");
    log.clear();
    lay(share("root.a", 5));
    assertEquals(System.identityHashCode(before), System.identityHashCode(queues.max.get("root.a")));
    assertEquals("[]", log.toString());
  }

  @Test
  void aQueueThatDoesNotExistIsPassedOverAndSaidOnce() {
    assertEquals(1, lay(share("root.x", 5), share("root.a", 5)));
    lay(share("root.x", 5), share("root.a", 5));
    assertEquals(1, log.stream().filter(l -> l.contains("unknown queue root.x")).count(), log.toString());
    queues.reload("root.x", "own");
    assertEquals(2, lay(share("root.x", 5), share("root.a", 5)));
    queues.max.remove("root.x");
    assertEquals(1, lay(share("root.x", 5), share("root.a", 5)));
    lay();
    assertEquals("{root.a=[own], root.b=[own]}", queues.max.toString());
  }
}
