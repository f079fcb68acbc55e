// Claims: what docs/hooks.md shows is sent and understood; whatever else comes back, or does not, is an IOException
// and never an answer.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import headroom.client.StatusException;
import java.io.IOException;
import java.net.ServerSocket;
import java.util.Arrays;
import java.util.Collections;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SchedulerClientTest {
  private static final int PATIENT_MS = 30_000;
  private static final String JOB = "job_1700000000000_0001";
  private static final String STOP = "/v1/jobs/" + JOB + "/stop";

  private FakeScheduler scheduler;

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
  }

  @AfterEach
  void stop() {
    scheduler.close();
  }

  @Test
  void sharesAreUnderstood() throws IOException {
    scheduler.answer("/v1/shares", 200, "{\"revision\":12,\"valid_s\":10,\"later\":1,\"queues\":["
        + "{\"queue\":\"root.q1\",\"max_mb\":5120,\"max_vcores\":10,\"lower\":\"drain\"},"
        + "{\"queue\":\"root.q2\",\"max_mb\":1024,\"max_vcores\":2,\"lower\":\"preempt\"}]}");
    Shares s = scheduler.client(PATIENT_MS).shares(0);
    assertEquals(12, s.revision);
    assertEquals(10, s.validS);
    assertEquals("[root.q1 at most 5120 MB, 10 vcores, root.q2 at most 1024 MB, 2 vcores]", s.queues.toString());
    assertFalse(s.queues.get(0).preempt);
    assertTrue(s.queues.get(1).preempt);
    assertEquals(Share.WEIGHT, s.queues.get(0).weightOf("application_1_0001"));
  }

  /** A standby serves no hooks: the next address is asked, and the one that answered stays the first. */
  @Test
  void theActiveSchedulerIsFound() throws IOException {
    int gone;
    try (ServerSocket free = new ServerSocket(0)) {
      gone = free.getLocalPort();
    }
    scheduler.answer(STOP, 200, "{\"stop\":false,\"dropped\":[]}");
    Configuration conf = new Configuration(false);
    conf.setInt(Settings.TIMEOUT_MS, PATIENT_MS);
    conf.set(Settings.URL, "http://127.0.0.1:" + gone + ", " + scheduler.url());
    SchedulerClient client = SchedulerClient.of(conf);
    assertFalse(client.stop(JOB).inForce);
    scheduler.answer(STOP, 200, "{\"stop\":true,\"min_tasks\":3,\"dropped\":[]}");
    assertTrue(client.stop(JOB).inForce);
    for (String wrong : new String[] {"http://127.0.0.1:1,", "http://127.0.0.1:1,https://127.0.0.1:2", ",", "http://127.0.0.1:1,ftp://h:2"}) {
      conf.set(Settings.URL, wrong);
      assertNull(SchedulerClient.of(conf), wrong);
    }
  }

  @Test
  void applicationsDivideTheirQueue() throws IOException {
    scheduler.answer("/v1/shares", 200, "{\"revision\":12,\"valid_s\":10,\"queues\":[{\"queue\":\"root.q1\",\"max_mb\":6144,"
        + "\"max_vcores\":6,\"lower\":\"drain\",\"jobs\":[{\"application\":\"application_1_0002\",\"max_mb\":5120,\"max_vcores\":5},"
        + "{\"application\":\"application_1_0001\",\"max_mb\":1024,\"max_vcores\":1}]}]}");
    Share s = scheduler.client(PATIENT_MS).shares(0).queues.get(0);
    assertEquals(5120, s.weightOf("application_1_0002"));
    assertEquals(1024, s.weightOf("application_1_0001"));
    assertEquals(1024, s.weightOf("application_1_0003"), "one that has just come");
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "\"max_mb\":0,\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":-1,\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":1,\"max_vcores\":0,\"lower\":\"drain\"",
    "\"max_mb\":1.5,\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":99999999999999999,\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":1,\"max_vcores\":99999999999,\"lower\":\"drain\"",
    "\"max_mb\":\"1\",\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":1,\"max_vcores\":1,\"lower\":\"kill\"",
    "\"max_mb\":1,\"max_vcores\":1",
    "\"max_vcores\":1,\"lower\":\"drain\"",
    "\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\",\"jobs\":{}",
    "\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\",\"jobs\":[{\"application\":\"a\",\"max_mb\":0}]",
    "\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\",\"jobs\":[{\"max_mb\":1}]",
    "\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\",\"jobs\":[{\"application\":\"a\",\"max_mb\":1},"
        + "{\"application\":\"a\",\"max_mb\":1}]"
  })
  void aBadShareSpoilsTheAnswer(String rest) {
    scheduler.answer("/v1/shares", 200, "{\"revision\":1,\"valid_s\":10,\"queues\":["
        + "{\"queue\":\"root.good\",\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\"},{\"queue\":\"root.bad\"," + rest + "}]}");
    IOException e = assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).shares(0));
    assertTrue(e.getMessage().startsWith("queue root.bad: "), e.getMessage());
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "{\"revision\":1,\"valid_s\":0,\"queues\":[]}",
    "{\"revision\":1,\"valid_s\":86400,\"queues\":[]}",
    "{\"revision\":1,\"queues\":[]}",
    "{\"revision\":1,\"valid_s\":10}",
    "{\"revision\":1,\"valid_s\":10,\"queues\":[{\"queue\":\"q\",\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\"}]}",
    "{\"revision\":1,\"valid_s\":10,\"queues\":[{\"queue\":\"root.q\",\"max_mb\":1,\"max_vcores\":1,\"lower\":\"drain\"},"
        + "{\"queue\":\"root.q\",\"max_mb\":2,\"max_vcores\":2,\"lower\":\"drain\"}]}"
  })
  void badSharesAreNone(String text) {
    scheduler.answer("/v1/shares", 200, text);
    assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).shares(0));
  }

  @Test
  void stopsAreUnderstood() throws IOException {
    scheduler.answer(STOP, 200, "{\"stop\":true,\"min_tasks\":30,\"dropped\":[35,31]}");
    Stop s = scheduler.client(PATIENT_MS).stop(JOB);
    assertTrue(s.inForce);
    assertEquals(30, s.minTasks);
    assertEquals(new TreeSet<>(Arrays.asList(31, 35)), s.dropped);

    scheduler.answer(STOP, 200, "{\"stop\":false,\"dropped\":[]}");
    assertFalse(scheduler.client(PATIENT_MS).stop(JOB).inForce);
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "", "null", "[]", "17", "<html>busy</html>", "{\"stop\":tr", "{\"stop\":true,\"min_tasks\":30,\"dropped\":[31",
    "{\"stop\":true,\"min_tasks\":30,\"dropped\":[31]} and more",
    "{\"stop\":true,\"min_tasks\":30}", "{\"stop\":true,\"dropped\":[31]}", "{\"dropped\":[]}",
    "{\"stop\":\"true\",\"min_tasks\":30,\"dropped\":[31]}", "{\"stop\":true,\"min_tasks\":-1,\"dropped\":[31]}",
    "{\"stop\":true,\"min_tasks\":30,\"dropped\":[-1]}", "{\"stop\":true,\"min_tasks\":30,\"dropped\":[\"31\"]}",
    "{\"stop\":true,\"min_tasks\":30,\"dropped\":[31.5]}", "{\"stop\":true,\"min_tasks\":30,\"dropped\":[99999999999]}"
  })
  void garbageIsNoAnswer(String text) {
    scheduler.answer(STOP, 200, text);
    assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
  }

  /** Within the bound of an answer, deeper than any stack. */
  @Test
  void deepAnswersAreNone() {
    for (String open : new String[] {"[", "{\"stop\":"}) {
      StringBuilder deep = new StringBuilder();
      while (deep.length() < 1_000_000) {
        deep.append(open);
      }
      scheduler.answer(STOP, 200, deep.toString());
      assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
      scheduler.answer(STOP, 200, "{\"stop\":" + repeat("[", 300_000) + repeat("]", 300_000) + ",\"dropped\":[]}");
      assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
    }
  }

  private static String repeat(String of, int times) {
    return String.join("", Collections.nCopies(times, of));
  }

  @Test
  void linesAreUnderstood() throws IOException {
    String start = "{\"revision\":1,\"valid_s\":10,\"queues\":[]";
    scheduler.answer("/v1/shares", 200, start + ",\"lines\":[{\"application\":\"application_1_0002\",\"line\":\"x\"}]}");
    assertEquals("{application_1_0002=x}", scheduler.client(PATIENT_MS).shares(3).lines.toString());
    assertEquals("[GET /v1/shares?faults=3 ]", scheduler.asked.toString());
    for (String wrong : new String[] {"1", "[1]", "[{\"application\":\"a\",\"line\":\"x\"}]", "[{\"application\":\"application_1_0002\"}]"}) {
      scheduler.answer("/v1/shares", 200, start + ",\"lines\":" + wrong + "}");
      assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).shares(0), wrong);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {201, 204, 302, 400, 404, 409, 500, 503})
  void otherStatusesAreNoAnswer(int status) {
    String text = status == 204 ? "" : "{\"stop\":true,\"min_tasks\":0,\"dropped\":[1]}";
    scheduler.answer(STOP, status, text);
    StatusException e = assertThrows(StatusException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
    assertEquals(status, e.status);
  }

  @Test
  void halfAnAnswerIsNone() {
    scheduler.answer(STOP, e -> {
      e.sendResponseHeaders(200, 1000);
      e.getResponseBody().write("{\"stop\":false,\"dropped\":[]}".getBytes("UTF-8"));
      e.getResponseBody().flush();
      throw new IOException("the connection is cut");
    });
    assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
  }

  @Test
  void endlessAnswersAreCutOff() {
    scheduler.answer(STOP, e -> {
      e.sendResponseHeaders(200, 0);
      byte[] blanks = new byte[1 << 16];
      Arrays.fill(blanks, (byte) ' ');
      for (int i = 0; i < 64; i++) {
        e.getResponseBody().write(blanks);
      }
    });
    IOException e = assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).stop(JOB));
    assertTrue(e.getMessage().contains("more than"), e.getMessage());
  }

  @Test
  void silenceIsGivenUp() {
    CountDownLatch done = new CountDownLatch(1);
    scheduler.answer(STOP, e -> await(done));
    IOException e = assertThrows(IOException.class, () -> scheduler.client(100).stop(JOB));
    assertTrue(e.getMessage().contains("within 100 ms") || e.getMessage().contains("timed out"), e.getMessage());
    done.countDown();
  }

  /** Each byte comes in time for the socket, the whole never. */
  @Test
  void tricklingIsGivenUp() {
    CountDownLatch done = new CountDownLatch(1);
    scheduler.answer(STOP, e -> {
      e.sendResponseHeaders(200, 0);
      while (done.getCount() > 0) {
        e.getResponseBody().write(' ');
        e.getResponseBody().flush();
        pause(done);
      }
    });
    assertThrows(IOException.class, () -> scheduler.client(200).stop(JOB));
    done.countDown();
  }

  @Test
  void nobodyListens() throws IOException {
    int free;
    try (ServerSocket s = new ServerSocket(0)) {
      free = s.getLocalPort();
    }
    Configuration conf = new Configuration(false);
    conf.set(Settings.URL, "http://127.0.0.1:" + free);
    assertThrows(IOException.class, () -> SchedulerClient.of(conf).shares(0));
  }

  @Test
  void dropsAreAskedForAsAgreed() throws IOException {
    scheduler.answer("/v1/jobs/" + JOB + "/drop", 200, "{\"dropped\":[31,35]}");
    assertEquals(new TreeSet<>(Arrays.asList(31, 35)), scheduler.client(PATIENT_MS).drop(JOB, 40, Arrays.asList(
        new MapTask(35, 1048576, MapTask.State.WAITING), new MapTask(31, 0, MapTask.State.WAITING))));
    assertEquals("[POST /v1/jobs/" + JOB + "/drop {\"tasks\":40,\"candidates\":"
        + "[{\"task\":35,\"bytes\":1048576},{\"task\":31,\"bytes\":0}]}]", scheduler.asked.toString());
  }

  @Test
  void beginsAreAskedForAsAgreed() throws IOException {
    scheduler.answer("/v1/jobs/" + JOB + "/begin", 200, "{\"run\":false}");
    assertFalse(scheduler.client(PATIENT_MS).begin(JOB, 31, 1, 1048576));
    assertEquals("[POST /v1/jobs/" + JOB + "/begin {\"task\":31,\"attempt\":1,\"bytes\":1048576}]", scheduler.asked.toString());
    scheduler.answer("/v1/jobs/" + JOB + "/begin", 200, "{}");
    assertThrows(IOException.class, () -> scheduler.client(PATIENT_MS).begin(JOB, 31, 1, 0));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "  ", "off", "127.0.0.1:1", "file:///tmp/x", "http://", "nonsense"})
  void withoutAnAddressThereIsNoClient(String url) {
    Configuration conf = new Configuration(false);
    assertNull(SchedulerClient.of(conf));
    conf.set(Settings.URL, url);
    assertNull(SchedulerClient.of(conf));
    conf.set(Settings.URL, "https://scheduler:1234"); // and no authority to trust
    assertNull(SchedulerClient.of(conf));
    conf.set(Settings.URL, "http://scheduler:1234");
    assertNotNull(SchedulerClient.of(conf));
  }

  private static void pause(CountDownLatch done) throws IOException {
    try {
      done.await(20, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }

  private static void await(CountDownLatch done) throws IOException {
    try {
      done.await();
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }
}
