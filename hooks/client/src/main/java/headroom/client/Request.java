package headroom.client;

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

/**
 * One request to Headroom's scheduler (docs/hooks.md). It ends within the timeout, however slowly the server sends, and
 * either returns a complete answer or throws an IOException.
 */
public final class Request {
  private static final int BODY_MAX = 1 << 20;

  private final HttpURLConnection connection;
  private final String path;
  private final int timeoutMs;

  /** A request over TLS, or without TLS if tls is null. */
  public Request(URL base, String path, int timeoutMs, PinnedFiles tls) throws IOException {
    // The scheduler is in the cluster; a proxy for the internet could not reach it.
    this.connection = (HttpURLConnection) new URL(base, path).openConnection(Proxy.NO_PROXY);
    this.path = path;
    this.timeoutMs = timeoutMs;
    connection.setConnectTimeout(timeoutMs);
    connection.setReadTimeout(timeoutMs);
    connection.setInstanceFollowRedirects(false);
    connection.setUseCaches(false);
    connection.setRequestProperty("Accept", "application/json");
    if (tls != null) {
      ((HttpsURLConnection) connection).setSSLSocketFactory(tls.factory());
      ((HttpsURLConnection) connection).setHostnameVerifier((host, session) -> true); // the certificate names a role, not a host
    }
  }

  /** Shows a token; "" for none. */
  public Request authorize(String token) {
    if (!token.isEmpty()) {
      connection.setRequestProperty("Authorization", "Bearer " + token);
    }
    return this;
  }

  /**
   * Sends JSON, or a request without a body if it is null. The socket's own timeouts bound each read, not the request.
   * So a separate thread makes the request, and is abandoned (until the socket's timeout ends it) when time is up.
   */
  public byte[] send(byte[] body) throws IOException, InterruptedException {
    FutureTask<byte[]> request = new FutureTask<>(() -> exchange(body));
    Thread thread = new Thread(request, "headroom-request");
    thread.setDaemon(true);
    thread.start();
    try {
      return request.get(timeoutMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException e) {
      connection.disconnect();
      throw new IOException(path + " timed out after " + timeoutMs + " ms", e);
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException ? (IOException) e.getCause() : new IOException(path, e.getCause());
    } catch (InterruptedException e) {
      connection.disconnect();
      throw e;
    }
  }

  private byte[] exchange(byte[] body) throws IOException {
    if (body != null) {
      connection.setDoOutput(true);
      connection.setRequestProperty("Content-Type", "application/json");
      connection.setFixedLengthStreamingMode(body.length);
      try (OutputStream out = connection.getOutputStream()) {
        out.write(body);
      }
    }
    int status = connection.getResponseCode();
    if (status != HttpURLConnection.HTTP_OK) {
      connection.disconnect();
      throw new StatusException(path, status);
    }
    try (InputStream in = connection.getInputStream()) {
      byte[] text = read(in);
      // Java takes the end of a connection for the end of the answer, whatever length was announced.
      if (connection.getContentLengthLong() >= 0 && connection.getContentLengthLong() != text.length) {
        throw new IOException(path + ": the answer was truncated after " + text.length + " bytes");
      }
      return text;
    }
  }

  private byte[] read(InputStream in) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] piece = new byte[8192];
    for (int n = in.read(piece); n >= 0; n = in.read(piece)) {
      all.write(piece, 0, n);
      if (all.size() > BODY_MAX) {
        throw new IOException(path + " : the answer has more than " + BODY_MAX + " bytes");
      }
    }
    return all.toByteArray();
  }
}
