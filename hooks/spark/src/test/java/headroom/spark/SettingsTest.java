// Claims: what is not set has its default; what is wrong is named with its property and means that nothing is dropped.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class SettingsTest {
  private static Settings of(String... pairs) {
    Map<String, String> conf = new HashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      conf.put(pairs[i], pairs[i + 1]);
    }
    return Settings.of(conf::get);
  }

  @Test
  void defaults() {
    Settings s = of();
    assertEquals(0, s.ratio.theta);
    assertEquals(1, s.ratio.seed);
    assertEquals(Stages.INPUT, s.stages);
    assertNull(s.url);
    assertEquals(1000, s.intervalMs);
    assertEquals(2000, s.timeoutMs);
    assertTrue(s.refused.isEmpty());
  }

  @Test
  void allIsRead() {
    Settings s = of(Settings.THETA, " 0.4 ", Settings.SEED, "-7", Settings.STAGES, "all", Settings.ADDRESS, "http://h:1",
        Settings.JOB, "j17", Settings.RUN, "3", Settings.TOKEN, "abc", Settings.INTERVAL_MS, "50", Settings.TIMEOUT_MS, "10000");
    assertTrue(s.refused.isEmpty(), s.refused.toString());
    assertEquals(0.4, s.ratio.theta);
    assertEquals(-7, s.ratio.seed);
    assertEquals(Stages.ALL, s.stages);
    assertEquals("http://h:1 j17 3 abc 50 10000",
        s.url + " " + s.job + " " + s.run + " " + s.token + " " + s.intervalMs + " " + s.timeoutMs);
  }

  @Test
  void tokenOfTheEnvironment() {
    Map<String, String> environment = Collections.singletonMap("HEADROOM_SPARK_TOKEN", "xyz");
    assertEquals("xyz", Settings.of(key -> null, environment::get).token);
    assertEquals("abc", Settings.of(key -> key.equals(Settings.TOKEN) ? "abc" : null, environment::get).token);
    assertEquals("", Settings.of(key -> null, key -> null).token);
  }

  @ParameterizedTest
  @CsvSource({
    Settings.THETA + ",abc", Settings.THETA + ",NaN", Settings.THETA + ",-0.1", Settings.THETA + ",1.01", Settings.THETA + ",Infinity",
    Settings.THETA + ",''", Settings.SEED + ",1.5", Settings.STAGES + ",input stages", Settings.STAGES + ",ALL",
    Settings.ADDRESS + ",nonsense", Settings.ADDRESS + ",file:///x", Settings.ADDRESS + ",http://", Settings.ADDRESS + ",http://h:99999999",
    Settings.INTERVAL_MS + ",0", Settings.TIMEOUT_MS + ",10001"
  })
  void whatIsWrongIsNamed(String key, String value) {
    Settings s = of(key, value);
    assertEquals(1, s.refused.size(), s.refused.toString());
    assertTrue(s.refused.get(0).startsWith(key + "=" + value), s.refused.toString());
    assertEquals(0, s.ratio.theta);
  }

  @Test
  void aJobOfTheSchedulerHasARun() {
    assertEquals(1, of(Settings.ADDRESS, "http://h:1", Settings.JOB, "j").refused.size());
  }

  @Test
  void anApplicationOfItsOwnNeedsNeitherJobNorRun() {
    Settings s = of(Settings.ADDRESS, "http://h:1", "spark.headroom.min-tasks", "70%", "spark.headroom.class", "high",
        Settings.TOKEN_FILE, "t");
    assertTrue(s.refused.isEmpty(), s.refused.toString());
    assertEquals(" 1 t {class=high, min-tasks=70%}", s.job + " " + s.run + " " + s.tokenFile + " " + s.asks);
  }

  @Test
  void theTokenIsNotSaid() {
    Settings s = of(Settings.TOKEN, "two words");
    assertEquals(1, s.refused.size());
    assertFalse(s.refused.get(0).contains("words"));
  }
}
