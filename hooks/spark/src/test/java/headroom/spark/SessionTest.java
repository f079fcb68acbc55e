// Claims: with a scheduler a drop ratio holds for 10 s, the conf's as well as an answer's, and then stages run exactly;
// without one the conf's holds for ever.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SessionTest {
  private static final long SECOND = 1_000_000_000L;

  private static Session session(String... pairs) {
    Map<String, String> conf = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      conf.put(pairs[i], pairs[i + 1]);
    }
    return new Session(Settings.of(conf::get), 0);
  }

  @Test
  void withoutASchedulerTheConfHolds() {
    assertEquals(0.4, session(Settings.THETA, "0.4").ratio(1_000_000 * SECOND).theta);
  }

  @Test
  void anAnswerHoldsForTenSeconds() {
    Session s = session(Settings.THETA, "0.4", Settings.ADDRESS, "http://h:1", Settings.JOB, "j", Settings.RUN, "1");
    assertEquals(0.4, s.ratio(10 * SECOND).theta);
    assertEquals(0, s.ratio(11 * SECOND).theta);
    assertEquals("no answer from the scheduler for 10 s: stages run completely until the next one", s.trouble());
    s.answered(new DropRatio(0.2, 7), 0.25, "", 20 * SECOND);
    assertEquals("0.25 0.0", s.end(30 * SECOND) + " " + s.end(31 * SECOND));
    assertEquals(0.2, s.ratio(30 * SECOND).theta);
    assertEquals(7, s.ratio(30 * SECOND).seed);
    assertEquals(0, s.ratio(31 * SECOND).theta);
  }

  @Test
  void withoutASchedulerTheOwnersBoundHolds() {
    Session s = session(Settings.DEADLINE, "10s", Settings.MIN_TASKS, "75%");
    assertEquals("0.0 0.25", s.end(8 * SECOND) + " " + s.end(9 * SECOND));
    assertEquals(0, session(Settings.DEADLINE, "10", Settings.MIN_TASKS, "75%").end(90 * SECOND), "a duration has a unit");
  }

  @Test
  void whatIsGivenUpIsNotKept() {
    Session s = session();
    s.registered(new Kept(1, 20, 20, 0, 1, true, ""), false);
    s.registered(new Kept(2, 4, 4, 0, 1, false, ""), false);
    s.dropped(1, 1);
    s.dropped(1, 1);
    s.dropped(9, 1);
    assertEquals("18 4 20", s.kept(1).kept() + " " + s.kept().get(1).kept() + " " + s.kept().get(0).total());
    s.dropped(1, -2);
    assertEquals(20, s.kept().get(0).kept());
  }
}
