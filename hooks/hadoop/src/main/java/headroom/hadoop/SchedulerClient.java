package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import headroom.client.Addresses;
import headroom.client.Pinned;
import headroom.client.PinnedFiles;
import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.SortedSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.Credentials;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The client of Headroom's scheduler (docs/hooks.md). Every request ends within the timeout, however slowly the server
 * sends, and either returns a complete, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final Logger LOG = LoggerFactory.getLogger(SchedulerClient.class);

  private final Addresses schedulers;
  private final int timeoutMs;

  /** Null in the clear. */
  private final PinnedFiles tls;

  /** The token of the job; "" for none. */
  private final String jobToken;

  /** "" for none. */
  private final String tokenFile;

  SchedulerClient(URL base, int timeoutMs) {
    this(Addresses.of(base), timeoutMs, null, "", "");
  }

  private SchedulerClient(Addresses schedulers, int timeoutMs, PinnedFiles tls, String jobToken, String tokenFile) {
    this.schedulers = schedulers;
    this.timeoutMs = timeoutMs;
    this.tls = tls;
    this.jobToken = jobToken;
    this.tokenFile = tokenFile;
  }

  /** For no job. Null if no scheduler is set, it is switched off, or its address is invalid. */
  static SchedulerClient of(Configuration conf) {
    return of(conf, null, "");
  }

  /**
   * For the hooks of a job: they authenticate with the token in its credentials, or with the cluster's if it has none.
   * Null as for {@link #of(Configuration)}.
   */
  static SchedulerClient of(Configuration conf, Credentials credentials, String application) {
    String url = conf.getTrimmed(Settings.URL, "");
    if (url.isEmpty() || url.equals(Settings.OFF)) {
      return null;
    }
    try {
      Addresses schedulers = Addresses.of(url);
      boolean secure = schedulers.secure();
      return new SchedulerClient(schedulers, Math.max(1, conf.getInt(Settings.TIMEOUT_MS, Settings.TIMEOUT_MS_DEFAULT)),
          secure ? Pinned.by(file(conf, Settings.CA, Settings.CA_VARIABLE)) : null,
          secure && credentials != null ? JobCredentials.token(credentials, application) : "",
          secure ? file(conf, Settings.TOKEN_FILE, Settings.TOKEN_FILE_VARIABLE) : "");
    } catch (IOException | NumberFormatException e) {
      LOG.error("{}={} is invalid, Headroom's hooks are off: {}", Settings.URL, url, e.getMessage());
      return null;
    }
  }

  /** The file that a property names, or an environment variable where the property is not set. */
  private static String file(Configuration conf, String property, String variable) {
    String named = System.getenv(variable);
    return conf.getTrimmed(property, named == null ? "" : named);
  }

  /** Asks for the shares, and says how many faults the plug-in has had. */
  Shares shares(long faults) throws IOException {
    return Shares.parse(ask(faults == 0 ? "/v1/shares" : "/v1/shares?faults=" + faults, null));
  }

  Stop stop(String job) throws IOException {
    return Stop.parse(ask("/v1/jobs/" + job + "/stop", null));
  }

  /** Sends the tasks that could be dropped; returns all that are recorded now. */
  SortedSet<Integer> drop(String job, int tasks, Collection<MapTask> candidates) throws IOException {
    ObjectNode body = Json.MAPPER.createObjectNode().put("tasks", tasks);
    for (MapTask c : candidates) {
      body.withArray("candidates").addObject().put("task", c.number).put("bytes", c.bytes);
    }
    return Json.tasks(ask("/v1/jobs/" + job + "/drop", body), "dropped");
  }

  /** Sends the state of the map tasks; returns what is to run next. */
  JsonNode speculate(String job, JsonNode tasks) throws IOException {
    return ask("/v1/jobs/" + job + "/speculate", tasks);
  }

  /** Asks whether an application may start. */
  Admission admit(Door.Visitor v) throws IOException {
    Wishes w = v.wishes();
    return Admission.parse(ask("/v1/admit", Json.MAPPER.createObjectNode()
        .put("application", v.id()).put("user", v.user()).put("queue", v.queue()).put("name", v.name())
        .put("tasks", w.tasks).put("deadline_s", w.deadlineS).put("error", w.error).put("wait", w.waits)));
  }

  boolean begin(String job, int task, int attempt, long bytes) throws IOException {
    ObjectNode body = Json.MAPPER.createObjectNode().put("task", task).put("attempt", attempt).put("bytes", bytes);
    return Json.bool(ask("/v1/jobs/" + job + "/begin", body), "run");
  }

  private JsonNode ask(String path, JsonNode body) throws IOException {
    String token = jobToken.isEmpty() && !tokenFile.isEmpty() ? token() : jobToken;
    try {
      return Json.object(schedulers.send(path, timeoutMs, tls, token, body == null ? null : Json.MAPPER.writeValueAsBytes(body)));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IOException(path + " was interrupted", e);
    }
  }

  /** Read anew for each request: it may be replaced while Hadoop runs. */
  private String token() throws IOException {
    try {
      return new String(Files.readAllBytes(Paths.get(tokenFile)), StandardCharsets.US_ASCII).trim();
    } catch (InvalidPathException e) {
      throw new IOException(tokenFile + " is no file", e);
    }
  }
}
