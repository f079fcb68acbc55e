package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.MalformedURLException;
import java.net.Proxy;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.SortedSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLSocketFactory;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Asks Headroom's scheduler (docs/hooks.md). Every request ends within the timeout, however slowly the other side
 * trickles, and either returns a whole, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final Logger LOG = LoggerFactory.getLogger(SchedulerClient.class);
  private static final int BODY_MAX = 1 << 20;

  private final URL base;
  private final int timeoutMs;

  /** Null in the clear. */
  private final SSLSocketFactory tls;

  /** "" for none. */
  private final String tokenFile;

  SchedulerClient(URL base, int timeoutMs) {
    this(base, timeoutMs, null, "");
  }

  private SchedulerClient(URL base, int timeoutMs, SSLSocketFactory tls, String tokenFile) {
    this.base = base;
    this.timeoutMs = timeoutMs;
    this.tls = tls;
    this.tokenFile = tokenFile;
  }

  /** Null where no scheduler is set, it is switched off, or its address is none. */
  static SchedulerClient of(Configuration conf) {
    String url = conf.getTrimmed(Settings.URL, "");
    if (url.isEmpty() || url.equals(Settings.OFF)) {
      return null;
    }
    try {
      URL base = new URL(url);
      if (base.getHost().isEmpty() || !base.getProtocol().matches("https?")) {
        throw new MalformedURLException("it must look like http://HOST:PORT");
      }
      boolean secure = base.getProtocol().equals("https");
      return new SchedulerClient(base, Math.max(1, conf.getInt(Settings.TIMEOUT_MS, Settings.TIMEOUT_MS_DEFAULT)),
          secure ? Pinned.by(file(conf, Settings.CA, Settings.CA_VARIABLE)) : null,
          secure ? file(conf, Settings.TOKEN_FILE, Settings.TOKEN_FILE_VARIABLE) : "");
    } catch (IOException | NumberFormatException e) {
      LOG.error("{}={} is refused, Headroom's hooks stay out of it: {}", Settings.URL, url, e.getMessage());
      return null;
    }
  }

  /** The file that a property names, or an environment variable where the property is not set. */
  private static String file(Configuration conf, String property, String variable) {
    String named = System.getenv(variable);
    return conf.getTrimmed(property, named == null ? "" : named);
  }

  Shares shares() throws IOException {
    return Shares.parse(ask("/v1/shares", null));
  }

  Stop stop(String job) throws IOException {
    return Stop.parse(ask("/v1/jobs/" + job + "/stop", null));
  }

  /** Names what could be dropped; answers with all that is recorded now. */
  SortedSet<Integer> drop(String job, int tasks, Collection<MapTask> candidates) throws IOException {
    ObjectNode body = Json.MAPPER.createObjectNode().put("tasks", tasks);
    for (MapTask c : candidates) {
      body.withArray("candidates").addObject().put("task", c.number).put("bytes", c.bytes);
    }
    return Json.tasks(ask("/v1/jobs/" + job + "/drop", body), "dropped");
  }

  boolean begin(String job, int task, int attempt, long bytes) throws IOException {
    ObjectNode body = Json.MAPPER.createObjectNode().put("task", task).put("attempt", attempt).put("bytes", bytes);
    return Json.bool(ask("/v1/jobs/" + job + "/begin", body), "run");
  }

  /**
   * The socket's own timeouts bound each read, not the request. So a thread of its own makes the request, and is left
   * to its end (which the socket's timeout brings) when time is up.
   */
  private JsonNode ask(String path, JsonNode body) throws IOException {
    HttpURLConnection connection = open(path);
    FutureTask<byte[]> request = new FutureTask<>(() -> exchange(connection, path, body));
    Thread thread = new Thread(request, "headroom-request");
    thread.setDaemon(true);
    thread.start();
    try {
      return Json.object(request.get(timeoutMs, TimeUnit.MILLISECONDS));
    } catch (TimeoutException e) {
      connection.disconnect();
      throw new IOException(path + " was not answered within " + timeoutMs + " ms");
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException ? (IOException) e.getCause() : new IOException(path, e.getCause());
    } catch (InterruptedException e) {
      connection.disconnect();
      Thread.currentThread().interrupt();
      throw new IOException(path + " was interrupted", e);
    }
  }

  private HttpURLConnection open(String path) throws IOException {
    // The scheduler is in the cluster; a proxy that is set for the world outside would not reach it.
    HttpURLConnection c = (HttpURLConnection) new URL(base, path).openConnection(Proxy.NO_PROXY);
    c.setConnectTimeout(timeoutMs);
    c.setReadTimeout(timeoutMs);
    c.setInstanceFollowRedirects(false);
    c.setUseCaches(false);
    c.setRequestProperty("Accept", "application/json");
    if (tls != null) {
      ((HttpsURLConnection) c).setSSLSocketFactory(tls);
      ((HttpsURLConnection) c).setHostnameVerifier((host, session) -> true); // the certificate names a role, not a host
      if (!tokenFile.isEmpty()) {
        c.setRequestProperty("Authorization", "Bearer " + token());
      }
    }
    return c;
  }

  /** Read anew for each request: it may be replaced while Hadoop runs. */
  private String token() throws IOException {
    try {
      return new String(Files.readAllBytes(Paths.get(tokenFile)), StandardCharsets.US_ASCII).trim();
    } catch (InvalidPathException e) {
      throw new IOException(tokenFile + " is no file", e);
    }
  }

  private static byte[] exchange(HttpURLConnection c, String path, JsonNode body) throws IOException {
    if (body != null) {
      byte[] text = Json.MAPPER.writeValueAsBytes(body);
      c.setDoOutput(true);
      c.setRequestProperty("Content-Type", "application/json");
      c.setFixedLengthStreamingMode(text.length);
      try (OutputStream out = c.getOutputStream()) {
        out.write(text);
      }
    }
    int status = c.getResponseCode();
    if (status != HttpURLConnection.HTTP_OK) {
      c.disconnect();
      throw new StatusException(path, status);
    }
    try (InputStream in = c.getInputStream()) {
      byte[] text = read(in, path);
      // Java takes the end of a connection for the end of the answer, however much was announced.
      if (c.getContentLengthLong() >= 0 && c.getContentLengthLong() != text.length) {
        throw new IOException(path + ": the answer broke off after " + text.length + " bytes");
      }
      return text;
    }
  }

  private static byte[] read(InputStream in, String path) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    byte[] piece = new byte[8192];
    for (int n = in.read(piece); n >= 0; n = in.read(piece)) {
      all.write(piece, 0, n);
      if (all.size() > BODY_MAX) {
        throw new IOException(path + " was answered with more than " + BODY_MAX + " bytes");
      }
    }
    return all.toByteArray();
  }
}
