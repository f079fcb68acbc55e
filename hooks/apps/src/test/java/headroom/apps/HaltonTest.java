// Claims: the points are those of the Halton sequence; parts of it add up to the whole; they give pi.
package headroom.apps;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class HaltonTest {
  @Test
  void digitsAreMirrored() {
    assertEquals(0.5, Halton.inverse(1, 2));
    assertEquals(0.25, Halton.inverse(2, 2));
    assertEquals(0.75, Halton.inverse(3, 2));
    assertEquals(1.0 / 9 + 2.0 / 3, Halton.inverse(5, 3), 1e-12);
  }

  @Test
  void partsAddUp() {
    assertEquals(Halton.inside(1, 5000), Halton.inside(1, 1234) + Halton.inside(1235, 3766));
  }

  @Test
  void piComesOut() {
    assertEquals(Math.PI, 4.0 * Halton.inside(1, 100_000) / 100_000, 1e-3);
  }
}
