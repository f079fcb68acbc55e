// Claims: a token goes only to a scheduler of the pinned authority; without that authority the hooks stay out of it. A
// job's own token is shown before the cluster's.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import headroom.client.SecureScheduler;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.Credentials;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PinnedTest {
  private static final String GO_ON = "{\"stop\":false,\"dropped\":[]}";

  private static SchedulerClient client(SecureScheduler s, Path ca, Path token) {
    return SchedulerClient.of(conf(s, ca, token));
  }

  private static Configuration conf(SecureScheduler s, Path ca, Path token) {
    Configuration conf = new Configuration(false);
    conf.set(Settings.URL, s.url());
    conf.set(Settings.CA, ca.toString());
    conf.set(Settings.TOKEN_FILE, token.toString());
    conf.setInt(Settings.TIMEOUT_MS, 30_000);
    return conf;
  }

  private static Path token(Path dir) throws IOException {
    return Files.write(dir.resolve("token"), "secret\n".getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void schedulerOfTheAuthority(@TempDir Path dir) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://scheduler/s1", GO_ON)) {
      assertNotNull(client(s, s.ca, token(dir)).stop("job_1"));
      assertEquals("Bearer secret", s.tokens.take());
      assertThrows(IOException.class, () -> client(s, s.ca, dir.resolve("none")).stop("job_1"));
      assertNull(client(s, dir.resolve("none"), token(dir)));
    }
  }

  @Test
  void aJobShowsItsOwn(@TempDir Path dir) throws Exception {
    Credentials credentials = new Credentials();
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://scheduler/s1", GO_ON)) {
      Configuration conf = conf(s, s.ca, token(dir));
      assertNotNull(SchedulerClient.of(conf, credentials, "application_1_0001").stop("job_1_0001"));
      assertEquals("Bearer secret", s.tokens.take());
      credentials.addSecretKey(JobCredentials.JOB, "own".getBytes(StandardCharsets.US_ASCII));
      assertNotNull(SchedulerClient.of(conf, credentials, "application_1_0001").stop("job_1_0001"));
      assertEquals("Bearer own", s.tokens.take());
      credentials.addSecretKey(JobCredentials.USER, "damaged".getBytes(StandardCharsets.US_ASCII));
      credentials.removeSecretKey(JobCredentials.JOB);
      assertNull(SchedulerClient.of(conf, credentials, "application_1_0001")); // it does not fall back to the cluster's
    }
  }

  @Test
  void anotherRole(@TempDir Path dir) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://worker/n01", GO_ON)) {
      assertThrows(IOException.class, () -> client(s, s.ca, token(dir)).stop("job_1"));
      assertTrue(s.tokens.isEmpty());
    }
  }

  @Test
  void anotherAuthority(@TempDir Path dir, @TempDir Path elsewhere) throws Exception {
    try (SecureScheduler s = new SecureScheduler(dir, "headroom://scheduler/s1", GO_ON);
        SecureScheduler other = new SecureScheduler(elsewhere, "headroom://scheduler/s1", GO_ON)) {
      assertThrows(IOException.class, () -> client(s, other.ca, token(dir)).stop("job_1"));
      assertTrue(s.tokens.isEmpty());
    }
  }
}
