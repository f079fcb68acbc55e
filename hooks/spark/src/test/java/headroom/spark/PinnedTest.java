// Claims: a token goes only to a scheduler of the pinned authority; an https address without one is refused;
// what is wrong with a file is said of that file; files that change are read again.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import headroom.client.Pinned;
import headroom.client.PinnedFiles;
import headroom.client.SecureScheduler;
import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PinnedTest {
  private static void report(SecureScheduler s, Path ca) throws Exception {
    report(s, Pinned.by(ca.toString()));
  }

  private static void report(SecureScheduler s, PinnedFiles files) throws Exception {
    new SchedulerClient(new URL(s.url()), "secret", "", "", 30_000, files).report("{}".getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void schedulerOfTheAuthority(@TempDir Path dir) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://scheduler/s1", FakeScheduler.EXACT)) {
      report(s, s.ca);
      assertEquals("Bearer secret", s.tokens.take());
      errorsNameTheirFile(dir, s.ca); // here, because a certificate takes seconds
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"worker/n01", "master/m1"})
  void anotherRole(String who, @TempDir Path dir) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://" + who, FakeScheduler.EXACT)) {
      assertThrows(IOException.class, () -> report(s, s.ca));
      assertTrue(s.tokens.isEmpty());
    }
  }

  @Test
  void anotherAuthority(@TempDir Path dir, @TempDir Path elsewhere) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://scheduler/s1", FakeScheduler.EXACT);
        SecureScheduler other = new SecureScheduler(elsewhere, "headroom://scheduler/s1", FakeScheduler.EXACT)) {
      Path ca = Files.copy(other.ca, dir.resolve("renewed.pem"));
      PinnedFiles files = Pinned.by(ca.toString());
      assertThrows(IOException.class, () -> report(s, files));
      assertTrue(s.tokens.isEmpty());
      Files.write(ca, new byte[0]);
      assertThrows(IOException.class, () -> report(s, files), "half a file does not end the application");
      Files.copy(s.ca, ca, StandardCopyOption.REPLACE_EXISTING);
      report(s, files);
      assertEquals("Bearer secret", s.tokens.take(), "files are read again when they change");
    }
  }

  private static void refused(Path ca, Path certificate, Path key, Path named) {
    String why = assertThrows(IOException.class, () -> Pinned.by(ca.toString(), certificate.toString(), key.toString())).getMessage();
    assertTrue(why.startsWith(named.toString()), why);
  }

  private static void errorsNameTheirFile(Path dir, Path ca) throws IOException {
    Path bad = Files.write(dir.resolve("bad.pem"), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".getBytes(StandardCharsets.US_ASCII));
    Path empty = Files.createFile(dir.resolve("empty.pem"));
    refused(ca, ca, bad, bad);
    refused(ca, ca, empty, empty);
    refused(ca, bad, bad, bad);
    refused(ca, empty, bad, empty);
  }

  @Test
  void addressWithoutAnAuthority() {
    Map<String, String> conf = new HashMap<>();
    conf.put(Settings.ADDRESS, "https://10.0.0.20:7411");
    conf.put(Settings.JOB, "j1");
    conf.put(Settings.RUN, "1");
    Settings s = Settings.of(conf::get, key -> null);
    assertEquals(1, s.refused.size(), s.refused.toString());
    assertTrue(s.refused.get(0).contains(Settings.CA), s.refused.toString());
  }
}
