package headroom.spark;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URL;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLSocketFactory;

/**
 * Tells Headroom's scheduler the progress (docs/hooks.md). A report ends within the timeout, however slowly the other
 * side trickles, and either returns a whole, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final String PATH = "/v1/spark/progress";
  private static final int BODY_MAX = 1 << 20;

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

  /**
   * The socket's own timeouts bound each read, not the request. So a thread of its own makes the request, and is left
   * to its end (which the socket's timeout brings) when time is up.
   */
  Answer report(byte[] progress) throws IOException, InterruptedException {
    HttpURLConnection connection = open();
    FutureTask<byte[]> request = new FutureTask<>(() -> exchange(connection, progress));
    Thread thread = new Thread(request, "headroom-request");
    thread.setDaemon(true);
    thread.start();
    try {
      return Answer.parse(request.get(timeoutMs, TimeUnit.MILLISECONDS));
    } catch (TimeoutException e) {
      connection.disconnect();
      throw new IOException("it did not answer within " + timeoutMs + " ms", e);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException ? (IOException) e.getCause() : new IOException(e.getCause());
    } catch (InterruptedException e) {
      connection.disconnect();
      throw e;
    }
  }

  private HttpURLConnection open() throws IOException {
    // The scheduler is in the cluster; a proxy that is set for the world outside would not reach it.
    HttpURLConnection c = (HttpURLConnection) new URL(base, PATH).openConnection(Proxy.NO_PROXY);
    c.setConnectTimeout(timeoutMs);
    c.setReadTimeout(timeoutMs);
    c.setInstanceFollowRedirects(false);
    c.setUseCaches(false);
    c.setDoOutput(true);
    c.setRequestProperty("Accept", "application/json");
    c.setRequestProperty("Content-Type", "application/json");
    if (tls != null) {
      ((HttpsURLConnection) c).setSSLSocketFactory(tls);
      ((HttpsURLConnection) c).setHostnameVerifier((host, session) -> true); // the certificate names a role, not a host
    }
    if (!token.isEmpty()) {
      c.setRequestProperty("Authorization", "Bearer " + token);
    }
    return c;
  }

  private static byte[] exchange(HttpURLConnection c, byte[] body) throws IOException {
    c.setFixedLengthStreamingMode(body.length);
    try (OutputStream out = c.getOutputStream()) {
      out.write(body);
    }
    int status = c.getResponseCode();
    if (status != HttpURLConnection.HTTP_OK) {
      c.disconnect();
      throw new IOException("it answered with status " + status);
    }
    try (InputStream in = c.getInputStream()) {
      byte[] text = read(in);
      // Java takes the end of a connection for the end of the answer, however much was announced.
      if (c.getContentLengthLong() >= 0 && c.getContentLengthLong() != text.length) {
        throw new IOException("the answer broke off after " + text.length + " bytes");
      }
      return text;
    }
  }

  private static byte[] read(InputStream in) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] piece = new byte[8192];
    for (int n = in.read(piece); n >= 0; n = in.read(piece)) {
      all.write(piece, 0, n);
      if (all.size() > BODY_MAX) {
        throw new IOException("it answered with more than " + BODY_MAX + " bytes");
      }
    }
    return all.toByteArray();
  }
}
