// Claims: executors beyond those wanted go newest first: by themselves where Spark lets them, else killed once nothing
// runs on them and no action needs what they hold, or after a while where little is lost; what stays is told. The number is told last, until it is accepted and
// not again. With dynamic allocation it is a bound, and Spark is never asked for more than it has. Where the number cannot
// be set nothing is done; a cancel is carried out as long as it stands.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;

class ControlTest {
  private static final class FakeTarget implements Control.Target {
    final List<String> done = new ArrayList<>();
    String fixed;
    boolean ready = true;
    boolean dynamic;
    boolean decommissions;
    boolean keepsFiles;

    @Override
    public String fixed() {
      return fixed;
    }

    @Override
    public boolean dynamic() {
      return dynamic;
    }

    @Override
    public boolean decommissions() {
      return decommissions;
    }

    @Override
    public boolean keepsFiles() {
      return keepsFiles;
    }

    @Override
    public boolean request(int executors) {
      done.add("want " + executors);
      return ready;
    }

    @Override
    public boolean kill(String executor) {
      return done.add("kill " + executor);
    }

    @Override
    public boolean decommission(String executor) {
      return done.add("leave " + executor);
    }

    @Override
    public void cancel() {
      done.add("cancel");
    }
  }

  private final FakeTarget target = new FakeTarget();
  private final Session session = new Session(Settings.of(key -> null), 0);
  private final Control control = new Control(target, session);

  /** Executor 2 runs a task after {@code work}, and 1 holds results that are needed. */
  private final Executors executors = new Executors();

  private void there(int n) {
    for (int i = 0; i < n; i++) {
      executors.added(String.valueOf(i), "h" + i, 2);
    }
  }

  private void work() {
    executors.keeps("1", 7, 20_000);
    executors.taskBegins("2", "h2", 5, 0);
  }

  private long now;
  private long nowMs;

  private String follow(String number, boolean cancel) throws IOException {
    String text = "{\"theta\":0,\"seed\":1,\"executors\":" + number + ",\"cancel\":" + cancel + "}";
    target.done.clear();
    control.follow(Answer.parse(text.getBytes(StandardCharsets.UTF_8)), executors.views(nowMs), now);
    return target.done.toString();
  }

  @Test
  void theNewestGoFirst() throws IOException {
    there(3);
    assertEquals("[kill 2, kill 1, want 1]", follow("1", false));
    assertEquals("[]", follow("1", false), "they are on their way");
    executors.removed("2");
    executors.removed("1");
    assertEquals("[]", follow("1", false));
    assertEquals(0, session.surplus());
  }

  @Test
  void whatIsNeededStaysUntilItIsNot() throws IOException {
    there(3);
    work();
    assertEquals("[kill 0, want 1]", follow("1", false));
    assertEquals(1, session.surplus());
    executors.removed("0");
    executors.taskEnds("2", "h2", 5);
    assertEquals("[kill 2, want 1]", follow("1", false));
    executors.removed("2");
    assertEquals("[]", follow("1", false));
    assertEquals(0, session.surplus());
  }

  @Test
  void resultsOfAnEndedActionHoldNobody() throws IOException {
    there(2);
    executors.keeps("0", 6, 1);
    executors.keeps("1", 7, 1);
    assertEquals("[want 1]", follow("1", false));
    assertEquals(1, session.surplus());
    executors.release(Collections.singleton(7));
    assertEquals("[kill 1, want 1]", follow("1", false));
  }

  @Test
  void whereFilesOutliveTheirExecutorIdleOnesGo() throws IOException {
    there(3);
    work();
    target.keepsFiles = true;
    assertEquals("[kill 1, kill 0, want 1]", follow("1", false));
  }

  @Test
  void afterAWhileThoseGoThatLoseLittle() throws IOException {
    there(3);
    work();
    executors.keeps("0", 7, 61_000);
    nowMs = 30_000;
    assertEquals("[want 1]", follow("1", false));
    now += Control.PATIENCE_NANOS - 1;
    assertEquals("[]", follow("1", false));
    assertEquals(2, session.surplus());
    now++;
    assertEquals("[kill 1, kill 2, want 1]", follow("1", false));
  }

  @Test
  void whatWouldLoseMuchStays() throws IOException {
    there(2);
    executors.keeps("0", 7, 61_000);
    executors.taskBegins("1", "h1", 5, 0);
    nowMs = 61_000;
    follow("1", false);
    now += 2 * Control.PATIENCE_NANOS;
    assertEquals("[]", follow("1", false));
    assertEquals(1, session.surplus());
    nowMs = 0;
    follow("2", false);
    now += Control.PATIENCE_NANOS;
    assertEquals("[want 1]", follow("1", false), "the time counts anew");
  }

  @Test
  void decommissionedOnesEndTheirTasks() throws IOException {
    there(3);
    work();
    target.decommissions = true;
    assertEquals("[leave 2, leave 1, want 1]", follow("1", false));
    assertEquals("[]", follow("1", false));
    assertEquals(0, session.surplus());
  }

  @Test
  void moreAreAskedForOnceAccepted() throws IOException {
    there(3);
    target.ready = false;
    assertEquals("[want 5]", follow("5", false));
    target.ready = true;
    assertEquals("[want 5]", follow("5", false));
    assertEquals("[]", follow("5", false));
    assertEquals("[]", follow("null", false));
    assertEquals("[kill 2, want 2]", follow("2", false));
  }

  @Test
  void dynamicAllocationIsOnlyBounded() throws IOException {
    there(3);
    work();
    target.dynamic = true;
    assertEquals("[]", follow("5", false), "Spark may want fewer");
    assertEquals("[want 3]", follow("3", false));
    assertEquals("[want 3]", follow("3", false), "Spark may have asked for more meanwhile");
    assertEquals("[want 2]", follow("2", false), "idle ones are given back by Spark itself");
    assertEquals(1, session.surplus());
    target.decommissions = true;
    assertEquals("[leave 2, want 2]", follow("2", false));
    assertEquals(0, session.surplus());
    executors.removed("2");
    assertEquals("[want 4]", follow("4", false), "Spark would not ask again by itself");
    assertEquals("[]", follow("4", false));
  }

  @Test
  void whatAnotherRulesIsLeftAlone() throws IOException {
    there(3);
    target.fixed = "the master is local";
    assertEquals("[]", follow("1", false));
    assertEquals("executors not changed: the master is local", session.trouble());
  }

  @Test
  void aCancelStands() throws IOException {
    assertEquals("[cancel]", follow("null", true));
    assertEquals("[cancel]", follow("null", true));
    assertEquals("[]", follow("null", false));
  }

  @Test
  void executorsAreToldByTheirHosts() {
    there(2);
    executors.added("9", "h1", 3);
    executors.taskBegins("9", "h1", 1, 0);
    ObjectNode o = new ObjectMapper().createObjectNode();
    executors.into(o);
    assertEquals("{\"running_on\":{\"h1\":1},\"cores_on\":{\"h0\":2,\"h1\":5},\"executors\":3}", o.toString());
  }
}
