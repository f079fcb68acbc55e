// Claims: a job's hooks show the job's token, made from its user's as the scheduler makes it; the user's token does not
// go into a job that the provider submits; a damaged token is refused without being told.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.security.Credentials;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JobCredentialsTest {
  private static final String APPLICATION = "application_1700000000000_0001";

  // As TestFormOfTokens of scheduler/hookserver has them.
  private static final String USER = "headroom-user-1.YW5u.1800000000.xoWSeFYcI5PvDSVp0h3QUj0PmKRQSUdR1Y8YC3o1ZBk";
  private static final String JOB = "headroom-job-1.YW5u.1800000000.S57Uu01w7RSm0hVToI8hiw4xjyWW5zCCjMWZfCIaUcE";

  private final Credentials credentials = new Credentials();

  private void user(String token) {
    credentials.addSecretKey(JobCredentials.USER, token.getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void theFormIsTheSchedulers() throws IOException {
    assertEquals("", JobCredentials.token(credentials, APPLICATION));
    user(USER + "\n");
    assertEquals(JOB, JobCredentials.token(credentials, APPLICATION));
    assertEquals(APPLICATION, JobCredentials.application(JobID.forName("job_1700000000000_0001")));
    assertEquals("application_1_12345", JobCredentials.application(JobID.forName("job_1_12345")));
  }

  @Test
  void theUsersTokenStaysBehind() throws IOException {
    assertFalse(JobCredentials.narrow(credentials, APPLICATION));
    user(USER);
    assertTrue(JobCredentials.narrow(credentials, APPLICATION));
    assertNull(credentials.getSecretKey(JobCredentials.USER));
    assertEquals(JOB, JobCredentials.token(credentials, "application_1_0001")); // it is the other job's all the same
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "secret", "headroom-job-1.YW5u.1800000000.S57Uu01w7RSm0hVToI8hiw4xjyWW5zCCjMWZfCIaUcE", "headroom-user-1.YW5u.1.secret",
    "headroom-user-1.YW5u.1.!secret!", "headroom-user-1.YW5u.1.xoWSeFYcI5PvDSVp0h3QUj0PmKRQSUdR1Y8YC3o1ZBk.secret", ""
  })
  void aDamagedTokenIsNotTold(String token) {
    user(token);
    IOException e = assertThrows(IOException.class, () -> JobCredentials.token(credentials, APPLICATION));
    assertFalse(e.toString().contains("secret"), e.toString());
    assertThrows(IOException.class, () -> JobCredentials.narrow(credentials, APPLICATION));
  }
}
