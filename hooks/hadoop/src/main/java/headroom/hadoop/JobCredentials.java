package headroom.hadoop;

import headroom.client.JobToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.security.Credentials;

/**
 * The credentials of a job's hooks, among the secrets that Hadoop transfers to the job's own processes. They are never
 * in its configuration, which other users can read.
 */
final class JobCredentials {
  /** The token of the job's user: mapreduce.job.credentials.json brings it. */
  static final Text USER = new Text("headroom.user-token");

  /** The token of the job alone, which {@link #narrow} puts in the other's place. */
  static final Text JOB = new Text("headroom.job-token");

  private JobCredentials() {}

  /** The token that the job's hooks send; "" if its credentials have none. */
  static String token(Credentials credentials, String application) throws IOException {
    byte[] job = credentials.getSecretKey(JOB);
    if (job != null) {
      return text(job);
    }
    byte[] user = credentials.getSecretKey(USER);
    return user == null ? "" : JobToken.of(text(user), application);
  }

  /** Replaces the user's token by the job's, so that the job cannot act for the user's others. False without one. */
  static boolean narrow(Credentials credentials, String application) throws IOException {
    byte[] user = credentials.getSecretKey(USER);
    if (user == null) {
      return false;
    }
    credentials.addSecretKey(JOB, JobToken.of(text(user), application).getBytes(StandardCharsets.US_ASCII));
    credentials.removeSecretKey(USER);
    return true;
  }

  private static String text(byte[] secret) {
    return new String(secret, StandardCharsets.US_ASCII).trim();
  }

  /** The application's id of a job's: application_1700000000000_0001. */
  static String application(JobID job) {
    return String.format(Locale.ROOT, "application_%s_%04d", job.getJtIdentifier(), job.getId());
  }
}
