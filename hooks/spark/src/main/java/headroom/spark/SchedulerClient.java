package headroom.spark;

import headroom.client.Request;
import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Paths;
import javax.net.ssl.SSLSocketFactory;

/**
 * Tells Headroom's scheduler the progress (docs/hooks.md). A report ends within the timeout, however slowly the other
 * side trickles, and either returns a whole, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final String PATH = "/v1/spark/progress";

  private final URL base;
  private final String token;

  /** Read for each report where there is no token; "" for none: it may be replaced while the application runs. */
  private final String tokenFile;

  private final int timeoutMs;

  /** Null in the clear. */
  private final SSLSocketFactory tls;

  SchedulerClient(URL base, String token, int timeoutMs) {
    this(base, token, "", timeoutMs, null);
  }

  SchedulerClient(URL base, String token, String tokenFile, int timeoutMs, SSLSocketFactory tls) {
    this.base = base;
    this.token = token;
    this.tokenFile = tokenFile;
    this.timeoutMs = timeoutMs;
    this.tls = tls;
  }

  Answer report(byte[] progress) throws IOException, InterruptedException {
    return Answer.parse(new Request(base, PATH, timeoutMs, tls).authorize(token()).send(progress));
  }

  private String token() throws IOException {
    if (!token.isEmpty() || tokenFile.isEmpty()) {
      return token;
    }
    try {
      return new String(Files.readAllBytes(Paths.get(tokenFile)), StandardCharsets.US_ASCII).trim();
    } catch (InvalidPathException e) {
      throw new IOException(tokenFile + " is no file", e);
    }
  }
}
