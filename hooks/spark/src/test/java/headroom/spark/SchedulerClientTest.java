// Claims: a report goes out as docs/hooks.md says; whatever comes back but a whole answer, or does not, is an
// IOException, in bounded time.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import headroom.client.JobToken;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SchedulerClientTest {
  private static final int PATIENT_MS = 30_000;

  private static final String USER = "headroom-user-1.YW5u.1800000000.xoWSeFYcI5PvDSVp0h3QUj0PmKRQSUdR1Y8YC3o1ZBk";
  private static final String APPLICATION = "application_1700000000000_0001";

  private FakeScheduler scheduler;

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
  }

  @AfterEach
  void stop() {
    scheduler.close();
  }

  private Answer report(String token, int timeoutMs) throws IOException, InterruptedException {
    return new SchedulerClient(new URL(scheduler.url()), token, timeoutMs).report("{\"job\":\"j\"}".getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void reportsAreAnswered() throws Exception {
    scheduler.reply(200, "{\"theta\":0.2,\"seed\":42,\"cancel\":false}");
    assertEquals(0.2, report("", PATIENT_MS).ratio.theta);
    assertEquals("POST /v1/spark/progress null", scheduler.requests.take());
    assertEquals("{\"job\":\"j\"}", scheduler.reports.take().toString());
    report("secret", PATIENT_MS);
    assertEquals("POST /v1/spark/progress Bearer secret", scheduler.requests.take());
  }

  @ParameterizedTest
  @ValueSource(strings = {"{\"headroom.user-token\":\"" + USER + "\"}\n", USER, "secret\n"})
  void ofAUsersTokenTheApplicationsIsMade(String text, @TempDir Path dir) throws Exception {
    Path file = Files.write(dir.resolve("token"), text.getBytes(StandardCharsets.US_ASCII));
    new SchedulerClient(new URL(scheduler.url()), "", file.toString(), APPLICATION, PATIENT_MS, null).report("{}".getBytes(StandardCharsets.UTF_8));
    String shown = text.startsWith("secret") ? "secret" : JobToken.of(USER, APPLICATION);
    assertEquals("POST /v1/spark/progress Bearer " + shown, scheduler.requests.take());
  }

  @Test
  void aDamagedUsersTokenIsNotShown(@TempDir Path dir) throws Exception {
    Path file = Files.write(dir.resolve("token"), USER.substring(0, USER.length() - 9).getBytes(StandardCharsets.US_ASCII));
    SchedulerClient client = new SchedulerClient(new URL(scheduler.url()), "", file.toString(), APPLICATION, PATIENT_MS, null);
    IOException e = assertThrows(IOException.class, () -> client.report("{}".getBytes(StandardCharsets.UTF_8)));
    assertTrue(!e.getMessage().contains("xoWSe") && scheduler.requests.isEmpty(), e.getMessage());
  }

  @ParameterizedTest
  @ValueSource(ints = {201, 204, 302, 400, 401, 404, 409, 500, 503})
  void otherStatusesAreNoAnswer(int status) {
    scheduler.reply(status, status == 204 ? "" : FakeScheduler.EXACT);
    IOException e = assertThrows(IOException.class, () -> report("", PATIENT_MS));
    assertTrue(e.getMessage().contains("" + status), e.getMessage());
  }

  @Test
  void halfAnAnswerIsNone() {
    scheduler.reply(e -> {
      e.sendResponseHeaders(200, 1000);
      e.getResponseBody().write(FakeScheduler.EXACT.getBytes(StandardCharsets.UTF_8));
      e.getResponseBody().flush();
      throw new IOException("the connection is cut");
    });
    assertThrows(IOException.class, () -> report("", PATIENT_MS));
  }

  @Test
  void endlessAnswersAreCutOff() {
    scheduler.reply(e -> {
      e.sendResponseHeaders(200, 0);
      byte[] blanks = new byte[1 << 16];
      Arrays.fill(blanks, (byte) ' ');
      for (int i = 0; i < 64; i++) {
        e.getResponseBody().write(blanks);
      }
    });
    IOException e = assertThrows(IOException.class, () -> report("", PATIENT_MS));
    assertTrue(e.getMessage().contains("more than"), e.getMessage());
  }

  /** Each byte comes in time for the socket, the whole never. */
  @Test
  void tricklingIsGivenUp() {
    CountDownLatch done = new CountDownLatch(1);
    scheduler.reply(e -> {
      e.sendResponseHeaders(200, 0);
      while (done.getCount() > 0) {
        e.getResponseBody().write(' ');
        e.getResponseBody().flush();
        pause(done);
      }
    });
    assertThrows(IOException.class, () -> report("", 200));
    done.countDown();
  }

  @Test
  void nobodyListens() throws IOException {
    int free;
    try (ServerSocket s = new ServerSocket(0)) {
      free = s.getLocalPort();
    }
    SchedulerClient client = new SchedulerClient(new URL("http://127.0.0.1:" + free), "", PATIENT_MS);
    assertThrows(IOException.class, () -> client.report(new byte[0]));
  }

  private static void pause(CountDownLatch done) throws IOException {
    try {
      done.await(20, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
  }
}
