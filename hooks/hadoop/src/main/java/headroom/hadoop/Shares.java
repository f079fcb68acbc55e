package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** One answer to GET /v1/shares. It is applied completely or not at all. */
final class Shares {
  /** 1 EiB of memory: beyond it stands a slip, no cluster. */
  private static final long MB_MAX = 1L << 40;

  private static final int VCORES_MAX = 1 << 24;
  private static final int QUEUES_MAX = 10_000;
  private static final int APPLICATIONS_MAX = 10_000;
  private static final int LINE_MAX = 1000;

  /** Longer than an hour nobody's silence may hold a queue down. */
  private static final int VALID_S_MAX = 3600;

  private static final Pattern APPLICATION = Pattern.compile("application_[0-9]{1,18}_[0-9]{1,9}");

  final long revision;
  final int validS;
  final List<Share> queues;

  /** What the pages of applications show of Headroom, by application. */
  final Map<String, String> lines;

  Shares(long revision, int validS, List<Share> queues, Map<String, String> lines) {
    this.revision = revision;
    this.validS = validS;
    this.queues = queues;
    this.lines = lines;
  }

  static Shares parse(JsonNode answer) throws IOException {
    long revision = Json.whole(answer, "revision", 0, Long.MAX_VALUE);
    int validS = (int) Json.whole(answer, "valid_s", 1, VALID_S_MAX);
    JsonNode list = Json.array(answer, "queues");
    if (list.size() > QUEUES_MAX) {
      throw new IOException(list.size() + " queues; the maximum is " + QUEUES_MAX + "");
    }
    List<Share> queues = new ArrayList<>();
    Set<String> names = new HashSet<>();
    for (JsonNode entry : list) {
      Share share = share(entry);
      if (!names.add(share.queue)) {
        throw new IOException("queue " + share.queue + " is listed twice");
      }
      queues.add(share);
    }
    return new Shares(revision, validS, queues, lines(answer));
  }

  /** A maximum of 0 is refused too: an application without its master's container waits for ever. */
  private static Share share(JsonNode entry) throws IOException {
    String queue = Json.text(entry, "queue");
    if (!queue.equals("root") && !queue.startsWith("root.")) {
      throw new IOException("queue " + queue + " has no full name, such as root." + queue);
    }
    try {
      long mb = Json.whole(entry, "max_mb", 1, MB_MAX);
      int vcores = (int) Json.whole(entry, "max_vcores", 1, VCORES_MAX);
      String lower = Json.text(entry, "lower");
      if (!lower.equals("drain") && !lower.equals("preempt")) {
        throw new IOException("\"lower\" must be drain or preempt: " + lower);
      }
      return new Share(queue, mb, vcores, lower.equals("preempt"), applications(entry));
    } catch (IOException e) {
      throw new IOException("queue " + queue + ": " + e.getMessage());
    }
  }

  /** Schedulers of earlier releases name none. */
  private static Map<String, Integer> applications(JsonNode entry) throws IOException {
    Map<String, Integer> all = new HashMap<>();
    if (!entry.has("jobs")) {
      return all;
    }
    JsonNode list = Json.array(entry, "jobs");
    if (list.size() > APPLICATIONS_MAX) {
      throw new IOException(list.size() + " applications; the maximum is " + APPLICATIONS_MAX + "");
    }
    for (JsonNode job : list) {
      String application = Json.text(job, "application");
      int weight = (int) Math.min(Integer.MAX_VALUE, Json.whole(job, "max_mb", 1, MB_MAX));
      if (all.put(application, weight) != null) {
        throw new IOException("application " + application + " is listed twice");
      }
    }
    return all;
  }

  /** Schedulers of earlier releases have none. */
  private static Map<String, String> lines(JsonNode answer) throws IOException {
    Map<String, String> all = new HashMap<>();
    if (!answer.has("lines")) {
      return all;
    }
    JsonNode list = Json.array(answer, "lines");
    if (list.size() > APPLICATIONS_MAX) {
      throw new IOException(list.size() + " lines; the maximum is " + APPLICATIONS_MAX);
    }
    for (JsonNode entry : list) {
      String line = Json.text(entry, "line");
      String application = Json.text(entry, "application");
      if (line.length() > LINE_MAX || !APPLICATION.matcher(application).matches()) {
        throw new IOException("the line of application " + application + " is invalid");
      }
      all.put(application, line);
    }
    return all;
  }
}
