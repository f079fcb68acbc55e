package headroom.spark;

import headroom.client.Request;
import java.io.IOException;
import java.net.URL;
import javax.net.ssl.SSLSocketFactory;

/**
 * Tells Headroom's scheduler the progress (docs/hooks.md). A report ends within the timeout, however slowly the other
 * side trickles, and either returns a whole, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final String PATH = "/v1/spark/progress";

  private final URL base;
  private final String token;
  private final int timeoutMs;

  /** Null in the clear. */
  private final SSLSocketFactory tls;

  SchedulerClient(URL base, String token, int timeoutMs) {
    this(base, token, timeoutMs, null);
  }

  SchedulerClient(URL base, String token, int timeoutMs, SSLSocketFactory tls) {
    this.base = base;
    this.token = token;
    this.timeoutMs = timeoutMs;
    this.tls = tls;
  }

  Answer report(byte[] progress) throws IOException, InterruptedException {
    return Answer.parse(new Request(base, PATH, timeoutMs, tls).authorize(token).send(progress));
  }
}
