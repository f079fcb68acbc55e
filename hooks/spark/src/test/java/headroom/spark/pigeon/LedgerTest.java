// Claims: tasks are split evenly over the groups that have an active master; a grant counts once and goes to one task; what is not used or
// not wanted is given back, and a group that grants what cannot be used is left alone for a while; a lost master's standby
// is told what is held; a lost group's tasks are wanted of the others.
package headroom.spark.pigeon;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Random;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class LedgerTest {
  private final Ledger ledger = new Ledger(new Random(1));
  private long now = 1_000_000;

  @BeforeEach
  void groups() throws Exception {
    hear(0, "r1", "a");
    hear(1, "r2", "b");
  }

  private boolean hear(int address, String group, String instance, String... slots) throws IOException {
    String text = "{\"group\":\"" + group + "\",\"master\":\"m\",\"active\":true,\"instance\":\"" + instance + "\",\"usable\":4,\"new\":[{}],\"slots\":["
        + String.join(",", slots) + "]}";
    return ledger.heard(address, Answer.parse(text.getBytes(StandardCharsets.UTF_8), now), now);
  }

  private static String slot(String instance, int number, String node, boolean high) {
    return "{\"instance\":\"" + instance + "\",\"number\":" + number + ",\"node\":\"" + node + "\",\"high\":" + high + ",\"proof\":\"of " + number + "\"}";
  }

  private JsonNode report(int address) throws IOException {
    String text = ledger.report(address, "app \"1\"", now);
    return text == null ? null : new ObjectMapper().readTree(text);
  }

  private void want(int low, int high) {
    ledger.want(new int[] {low, high}, now);
  }

  @Test
  void evenSplit() throws Exception {
    want(7, 2);
    int first = report(0).get("wantLow").asInt();
    int second = report(1).get("wantLow").asInt();
    assertEquals(7, first + second);
    assertTrue(Math.abs(first - second) == 1);
    assertEquals(1, report(0).get("wantHigh").asInt());
    assertEquals("app \"1\"", report(0).get("application").asText());
    want(3, 2);
    assertEquals(3, report(0).get("wantLow").asInt() + report(1).get("wantLow").asInt());
  }

  @Test
  void grantCountsOnce() throws Exception {
    want(4, 0);
    assertTrue(hear(0, "r1", "a", slot("a", 1, "n1", false)));
    assertFalse(hear(0, "r1", "a", slot("a", 1, "n1", false)));
    assertEquals(1, ledger.grants());
    want(4, 0);
    assertEquals(1, report(0).get("wantLow").asInt());
    assertEquals(1, report(0).get("seen").asInt());
    assertEquals(Collections.singletonMap("n1", 1), ledger.unused(false));
    assertTrue(ledger.unused(true).isEmpty());
    ledger.begin(5, "e1", "n1", false);
    assertTrue(ledger.unused(false).isEmpty());
    assertThrows(IllegalStateException.class, () -> ledger.begin(6, "e1", "n1", false));
    assertEquals("n1", report(0).get("held").get(0).get("node").asText());
    assertEquals("of 1", report(0).get("held").get(0).get("proof").asText());
    ledger.end(5);
    ledger.end(5);
    assertEquals(0, report(0).get("held").size());
  }

  @Test
  void whatIsNotWantedIsGivenBack() throws Exception {
    want(2, 0);
    hear(0, "r1", "a", slot("a", 1, "n1", false), slot("a", 2, "n1", false));
    ledger.begin(5, "e1", "n1", false);
    want(0, 0);
    assertEquals(1, report(0).get("held").size());
    assertEquals(0, report(0).get("wantLow").asInt() + report(1).get("wantLow").asInt());
  }

  @Test
  void whatCannotBeUsedIsGivenBackAndNotWantedForAWhile() throws Exception {
    want(4, 0);
    hear(0, "r1", "a", slot("a", 1, "n1", false));
    now += Ledger.UNUSED_MS + 1;
    hear(0, "r1", "a");
    hear(1, "r2", "b");
    want(4, 0);
    assertEquals(0, report(0).get("held").size());
    assertEquals(0, report(0).get("wantLow").asInt());
    assertTrue(report(1).get("wantLow").asInt() >= 2);
    now += Ledger.PAUSE_MS;
    assertTrue(report(0).get("wantLow").asInt() > 0);
  }

  @Test
  void lostExecutor() throws Exception {
    want(4, 0);
    hear(0, "r1", "a", slot("a", 1, "n1", false), slot("a", 2, "n2", false));
    ledger.begin(5, "e1", "n1", false);
    ledger.begin(6, "e2", "n2", false);
    ledger.lost("e1");
    assertEquals(1, report(0).get("held").size());
    assertEquals("n2", report(0).get("held").get(0).get("node").asText());
  }

  @Test
  void standbyIsToldWhatIsHeld() throws Exception {
    want(4, 0);
    hear(0, "r1", "a", slot("a", 3, "n1", false));
    ledger.begin(5, "e1", "n1", false);
    assertNull(report(2));
    hear(2, "r1", "c");
    assertNull(report(2), "the first master has just answered");
    now += Ledger.SILENCE_MS;
    hear(2, "r1", "c");
    assertNull(report(0));
    JsonNode r = report(2);
    assertEquals("c", r.get("instance").asText());
    assertEquals(0, r.get("seen").asInt());
    assertEquals("a", r.get("held").get(0).get("instance").asText());
    assertTrue(hear(2, "r1", "c", slot("c", 1, "n1", false)), "its numbers begin anew");
  }

  @Test
  void lostGroup() throws Exception {
    want(6, 0);
    now += Ledger.SILENCE_MS + 1;
    hear(1, "r2", "b");
    want(6, 0);
    assertEquals(6, report(1).get("wantLow").asInt());
    assertEquals(now, ledger.lastHeard());
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "[]", "{", "{\"active\":true}", "{\"slots\":[{}]}", "{\"slots\":[{\"instance\":\"a\",\"number\":-1,\"node\":\"n\"}]}"})
  void badAnswers(String text) {
    assertThrows(IOException.class, () -> Answer.parse(text.getBytes(StandardCharsets.UTF_8), now));
  }
}
