package headroom.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Derives the token of a job from the token of its user (docs/hooks.md). It needs no request, and neither the user's
 * token nor that of another job can be derived from it.
 */
public final class JobToken {
  private static final String USER_KIND = "headroom-user-1";
  private static final String JOB_KIND = "headroom-job-1";
  private static final String LABEL = "headroom hooks job 1\n";
  private static final int MAC_BYTES = 32;

  private JobToken() {}

  /** The token of the job with this application id. Errors do not contain the user's token. */
  public static String of(String user, String application) throws IOException {
    String[] parts = user.split("\\.", -1);
    if (parts.length != 4 || !parts[0].equals(USER_KIND)) {
      throw new IOException("it is not a user's token of \"scheduler hook token\"");
    }
    try {
      byte[] key = Base64.getUrlDecoder().decode(parts[3]);
      if (key.length != MAC_BYTES) {
        throw new IOException("the user's token is truncated");
      }
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      byte[] sum = mac.doFinal((LABEL + application).getBytes(StandardCharsets.UTF_8));
      return String.join(".", JOB_KIND, parts[1], parts[2], Base64.getUrlEncoder().withoutPadding().encodeToString(sum));
    } catch (IllegalArgumentException e) {
      throw new IOException("the user's token is damaged");
    } catch (GeneralSecurityException e) {
      throw new IOException("this Java has no HmacSHA256", e);
    }
  }
}
