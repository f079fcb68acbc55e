// Claims: an application without a deadline goes straight in; one with a deadline is held until the answer, and then
// enters, is refused with its reason, or is asked about again; one that was ended meanwhile does neither; while nobody
// answers, everything goes in; one that the scheduler cannot judge goes in alone. Tags that make no sense are said.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class DoorTest {
  private static class Guest implements Door.Visitor {
    final String id;
    final Wishes wishes;
    volatile boolean ended;

    Guest(String id, String... tags) {
      this.id = id;
      wishes = Wishes.of(Arrays.asList(tags));
    }

    @Override
    public String id() {
      return id;
    }

    @Override
    public String user() {
      return "ann";
    }

    @Override
    public String queue() {
      return "root.q1";
    }

    @Override
    public String name() {
      return "words";
    }

    @Override
    public Wishes wishes() {
      return wishes;
    }

    @Override
    public boolean stands() {
      return !ended;
    }
  }

  private final BlockingQueue<String> told = new LinkedBlockingQueue<>();
  private FakeScheduler scheduler;
  private Door door;
  private volatile long nanos;

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
    door = new Door(scheduler.client(30_000), new Faults(org.slf4j.LoggerFactory.getLogger(DoorTest.class)), v -> told.add("enter " + v.id()), (v, why) -> told.add("refuse " + v.id() + ": " + why), () -> nanos);
  }

  @AfterEach
  void end() {
    door.close();
    scheduler.close();
  }

  private String next() throws InterruptedException {
    return told.poll(1, TimeUnit.MINUTES);
  }

  private void answer(String decision) {
    scheduler.answer("/v1/admit", 200, "{\"decision\":\"" + decision + "\",\"slots\":1,\"reason\":\"needs 9\"}");
  }

  @Test
  void withoutADeadlineNobodyIsAsked() {
    assertFalse(door.holds(new Guest("a1", "nightly", "headroom-tasks:9")));
    assertEquals(0, scheduler.asked.size());
  }

  @Test
  void whoIsAdmittedEnters() throws InterruptedException {
    answer("admitted");
    Guest g = new Guest("a1", "headroom-deadline:1h10m", "headroom-error:5%", "headroom-tasks:40", "headroom-queue");
    assertTrue(door.holds(g));
    assertEquals("enter a1", next());
    assertEquals(
        "[POST /v1/admit {\"application\":\"a1\",\"user\":\"ann\",\"queue\":\"root.q1\",\"name\":\"words\",\"tasks\":40,\"deadline_s\":4200,\"error\":0.05,\"wait\":true}]",
        scheduler.asked.toString());
    assertFalse(door.holds(g), "it comes again, and goes in");
  }

  @Test
  void whoIsRefusedHearsWhy() throws InterruptedException {
    answer("refused");
    assertTrue(door.holds(new Guest("a1", "headroom-deadline:10s")));
    assertEquals("refuse a1: needs 9", next());
  }

  @Test
  void whoWaitsIsAskedAboutAgain() throws InterruptedException {
    AtomicInteger times = new AtomicInteger();
    scheduler.answer("/v1/admit", e -> FakeScheduler.send(e, 200,
        "{\"decision\":\"" + (times.incrementAndGet() < 3 ? "queued" : "admitted") + "\",\"reason\":\"needs 9\"}"));
    assertTrue(door.holds(new Guest("a1", "headroom-deadline:10s", "headroom-queue")));
    assertEquals("enter a1", next());
    assertEquals(3, times.get());
  }

  @Test
  void whoWasEndedIsForgotten() throws InterruptedException {
    answer("admitted");
    Guest gone = new Guest("a1", "headroom-deadline:10s");
    gone.ended = true;
    assertTrue(door.holds(gone));
    assertTrue(door.holds(new Guest("a2", "headroom-deadline:10s")));
    assertEquals("enter a2", next());
    assertTrue(told.isEmpty(), "nothing is said of one that was ended: " + told);
  }

  @Test
  void silenceLetsEverybodyIn() throws InterruptedException {
    scheduler.answer("/v1/admit", 503, "{\"error\":\"starting\"}");
    Guest first = new Guest("a1", "headroom-deadline:10s");
    assertTrue(door.holds(first));
    assertEquals("enter a1", next());
    assertFalse(door.holds(first));
    assertFalse(door.holds(new Guest("a2", "headroom-deadline:10s")), "nobody is asked for a while");
    assertEquals(1, scheduler.asked.size());
    nanos += Door.SILENCE_NANOS;
    answer("refused");
    assertTrue(door.holds(new Guest("a3", "headroom-deadline:10s")));
    assertEquals("refuse a3: needs 9", next());
  }

  @Test
  void oneThatCannotBeJudgedSilencesNobody() throws InterruptedException {
    scheduler.answer("/v1/admit", 400, "{\"error\":\"it has 20000000 tasks\"}");
    Guest first = new Guest("a1", "headroom-deadline:10s", "headroom-tasks:20000000");
    assertTrue(door.holds(first));
    assertEquals("enter a1", next());
    answer("refused");
    assertTrue(door.holds(new Guest("a2", "headroom-deadline:10s")), "the next is asked about");
    assertEquals("refuse a2: needs 9", next());
  }

  @Test
  void whateverGoesWrongNobodyIsHeldForEver() throws InterruptedException {
    answer("admitted");
    AtomicInteger asked = new AtomicInteger();
    Guest odd = new Guest("a1", "headroom-deadline:10s") {
      @Override
      public boolean stands() {
        asked.incrementAndGet();
        throw new NoSuchMethodError("made for another Hadoop");
      }
    };
    assertTrue(door.holds(odd));
    assertEquals("enter a1", next());
    assertFalse(door.holds(odd), "it comes again, and goes in");
    assertEquals(1, asked.get());
  }

  @Test
  void anApplicationMayHaveNoTagsAtAll() {
    assertEquals(0, Wishes.of(null).deadlineS);
    assertEquals(90, Wishes.of(Arrays.asList(null, "headroom-deadline:90s")).deadlineS);
  }

  @Test
  void tagsThatMakeNoSenseAreSaid() {
    for (String tag : new String[] {
      "headroom-deadline:", "headroom-deadline:0s", "headroom-deadline:10", "headroom-deadline:-1s", "headroom-deadline:soon",
      "headroom-error:100%", "headroom-error:2", "headroom-error:-5%", "headroom-tasks:x", "headroom-tasks:99999999999",
      "headroom-tasks:3000000000"
    }) {
      assertTrue(Wishes.of(Arrays.asList("headroom-deadline:5m", tag)).wrong.contains(tag), tag);
    }
    Wishes w = Wishes.of(Arrays.asList("headroom-deadline:90s", "headroom-error:0.25"));
    assertEquals("", w.wrong);
    assertEquals(90, w.deadlineS);
    assertEquals(0.25, w.error);
  }
}
