// Claims: whatever goes wrong in our part is counted, and Hadoop gets what it would have had alone; an interruption stays one.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class FaultsTest {
  private final Faults faults = new Faults(LoggerFactory.getLogger(FaultsTest.class));

  private static int deep(int n) {
    return 1 + deep(n + 1);
  }

  @Test
  void faultsAreCountedAndEndHere() {
    assertEquals(7, faults.or(1, "ours", () -> 7));
    assertEquals(1, faults.or(1, "ours", () -> Integer.parseInt("x")));
    assertEquals(1, faults.or(1, "ours", () -> deep(0)));
    faults.run("ours", () -> { throw new IOException("full"); });
    faults.run("ours", () -> { throw new NoSuchMethodError("another Hadoop"); });
    assertEquals(4, faults.count());
  }

  @Test
  void anInterruptionIsNoFault() {
    faults.run("ours", () -> { throw new InterruptedException(); });
    assertTrue(Thread.interrupted());
    assertEquals(0, faults.count());
  }

  @Test
  void lackOfMemoryIsTheProcesssOwn() {
    assertThrows(OutOfMemoryError.class, () -> faults.run("ours", () -> { throw new OutOfMemoryError(); }));
  }
}
