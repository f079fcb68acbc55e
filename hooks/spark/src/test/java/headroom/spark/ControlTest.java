// Claims: executors beyond those wanted are killed, newest first, and then the number is told; it is told until it is
// accepted and not again; where another rules them nothing is done; a cancel is carried out as long as it stands.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class ControlTest {
  private static final class FakeTarget implements Control.Target {
    final List<String> done = new ArrayList<>();
    String fixed;
    boolean ready = true;

    @Override
    public String fixed() {
      return fixed;
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
    public void cancel() {
      done.add("cancel");
    }
  }

  private final FakeTarget target = new FakeTarget();
  private final Session session = new Session(Settings.of(key -> null), 0);
  private final Control control = new Control(target, session);

  private void follow(String executors, boolean cancel) throws IOException {
    String text = "{\"theta\":0,\"seed\":1,\"executors\":" + executors + ",\"cancel\":" + cancel + "}";
    control.follow(Answer.parse(text.getBytes(StandardCharsets.UTF_8)), Arrays.asList("0", "1", "2"));
  }

  @Test
  void theNewestGoFirst() throws IOException {
    follow("1", false);
    assertEquals("[kill 2, kill 1, want 1]", target.done.toString());
  }

  @Test
  void moreAreAskedForOnceAccepted() throws IOException {
    target.ready = false;
    follow("5", false);
    target.ready = true;
    follow("5", false);
    follow("5", false);
    assertEquals("[want 5, want 5]", target.done.toString());
    follow("null", false);
    follow("2", false);
    assertEquals("[want 5, want 5, kill 2, want 2]", target.done.toString());
  }

  @Test
  void whatAnotherRulesIsLeftAlone() throws IOException {
    target.fixed = "the master is local";
    follow("1", false);
    assertEquals("[]", target.done.toString());
    assertEquals("executors stay as they are: the master is local", session.trouble());
  }

  @Test
  void aCancelStands() throws IOException {
    follow("null", true);
    follow("null", true);
    follow("null", false);
    assertEquals("[cancel, cancel]", target.done.toString());
  }
}
