// Claims: what is needed is there and well formed, or the application ends with the property's name and what it should be.
package headroom.spark.pigeon;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class OptionsTest {
  private final Map<String, String> conf = new HashMap<>();

  OptionsTest() {
    conf.put(Options.EXECUTORS, "spark://10.0.0.1:7077,10.0.0.2:7077");
  }

  @Test
  void all() {
    conf.put(Options.NODES, "10.0.1.1=n01, 10.0.1.2=n02");
    conf.put(Options.PRIORITY, "high");
    Options o = Options.of("spark-pigeon://10.0.0.3:7420,10.0.0.4:7420", conf::get);
    assertEquals("[http://10.0.0.3:7420, http://10.0.0.4:7420]", o.masters.toString());
    assertArrayEquals(new String[] {"spark://10.0.0.1:7077", "spark://10.0.0.2:7077"}, o.executors);
    assertEquals("n02", o.nodes.get("10.0.1.2"));
    assertTrue(o.high);
    assertEquals(60_000, o.patienceMs);
  }

  @Test
  void ours() {
    assertTrue(Options.names("pigeon://h:1"));
    assertTrue(Options.names("spark-pigeon://h:1"));
    assertFalse(Options.names("spark://h:1"));
    assertFalse(Options.names("local[2]"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"pigeon://", "pigeon://h", "pigeon://h:1,", "pigeon://h:0", "pigeon://h:1/x", "pigeon://h:65536x"})
  void badMasters(String master) {
    assertTrue(assertThrows(IllegalArgumentException.class, () -> Options.of(master, conf::get)).getMessage().contains(master));
  }

  @ParameterizedTest
  @CsvSource({Options.EXECUTORS + ",h:7077", Options.NODES + ",h", Options.PRIORITY + ",urgent", Options.PATIENCE_S + ",0",
      Options.PATIENCE_S + ",1s", "spark.task.cpus,2", "spark.headroom.ca,/none"})
  void badProperties(String key, String value) {
    conf.put(key, value);
    String why = assertThrows(IllegalArgumentException.class, () -> Options.of("pigeon://h:1", conf::get)).getMessage();
    assertTrue(why.contains(key), why);
  }
}
