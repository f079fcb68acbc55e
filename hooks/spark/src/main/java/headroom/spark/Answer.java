package headroom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** One answer to POST /v1/spark/progress: unknown fields are ignored, anything missing or invalid makes it invalid. */
final class Answer {
  /** What stands for "as they are" in {@link #executors}. */
  static final int AS_THEY_ARE = -1;

  /** Bounds a line of the driver's log. */
  private static final int REFUSED_MAX = 1_000;

  /** Bounds an answer. */
  private static final int COPIES_MAX = 256;

  private static final int EXECUTORS_MAX = 10_000;
  private static final ObjectMapper MAPPER = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  final DropRatio ratio;
  final int executors;
  final boolean cancel;

  /** The fraction of its partitions that a map stage may miss if it ends now. */
  final double end;

  /** Why the application's deadline is not promised, in words; "" if it is, or none was requested. */
  final String refused;

  /** Of which tasks a copy is wanted. */
  final List<Copy> copies;

  /** A task that runs. */
  static final class Copy {
    final int stage;
    final int attempt;
    final int partition;

    private Copy(int stage, int attempt, int partition) {
      this.stage = stage;
      this.attempt = attempt;
      this.partition = partition;
    }
  }

  private Answer(DropRatio ratio, int executors, boolean cancel, double end, List<Copy> copies,
      String refused) {
    this.ratio = ratio;
    this.executors = executors;
    this.cancel = cancel;
    this.end = end;
    this.copies = copies;
    this.refused = refused;
  }

  static Answer parse(byte[] text) throws IOException {
    JsonNode a;
    try {
      a = MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IOException("the answer is not JSON: " + e.getOriginalMessage(), e);
    }
    if (a == null || !a.isObject()) {
      throw new IOException("the answer is not a JSON object");
    }
    double theta = part("theta", a.path("theta"));
    JsonNode seed = a.path("seed");
    if (!seed.isIntegralNumber() || !seed.canConvertToLong()) {
      throw wrong("seed", "a whole number", seed);
    }
    JsonNode cancel = a.path("cancel");
    if (!cancel.isBoolean()) {
      throw wrong("cancel", "true or false", cancel);
    }
    return new Answer(new DropRatio(theta, seed.longValue()), executors(a.path("executors")), cancel.booleanValue(),
        absent(a.path("end")) ? 0 : part("end", a.path("end")), copies(a.path("copies")), refused(a.path("refused")));
  }

  private static boolean absent(JsonNode n) {
    return n.isMissingNode() || n.isNull();
  }

  private static String refused(JsonNode n) throws IOException {
    if (absent(n)) {
      return "";
    }
    if (!n.isTextual()) {
      throw wrong("refused", "a text", n);
    }
    String text = n.textValue().replaceAll("\\p{Cntrl}", " ");
    return text.substring(0, Math.min(text.length(), REFUSED_MAX));
  }

  private static List<Copy> copies(JsonNode n) throws IOException {
    List<Copy> all = new ArrayList<>();
    if (!absent(n) && (!n.isArray() || n.size() > COPIES_MAX)) {
      throw wrong("copies", "a list of at most " + COPIES_MAX, n);
    }
    for (JsonNode c : n) {
      all.add(new Copy(whole(c, "stage"), whole(c, "attempt"), whole(c, "partition")));
    }
    return Collections.unmodifiableList(all);
  }

  private static int whole(JsonNode copy, String field) throws IOException {
    JsonNode n = copy.path(field);
    if (!n.isIntegralNumber() || !n.canConvertToInt() || n.intValue() < 0) {
      throw wrong("copies." + field, "a whole number from 0", n);
    }
    return n.intValue();
  }

  private static double part(String field, JsonNode n) throws IOException {
    if (!n.isNumber() || !(n.doubleValue() >= 0 && n.doubleValue() <= 1)) {
      throw wrong(field, "a number from 0 to 1", n);
    }
    return n.doubleValue();
  }

  private static int executors(JsonNode n) throws IOException {
    if (absent(n)) {
      return AS_THEY_ARE;
    }
    if (!n.isIntegralNumber() || !n.canConvertToInt() || n.intValue() < 1 || n.intValue() > EXECUTORS_MAX) {
      throw wrong("executors", "a whole number from 1 to " + EXECUTORS_MAX, n);
    }
    return n.intValue();
  }

  private static IOException wrong(String field, String what, JsonNode n) {
    String text = n.isMissingNode() ? "missing" : n.toString();
    return new IOException("\"" + field + "\" is not " + what + ": " + (text.length() > 60 ? text.substring(0, 60) + "..." : text));
  }
}
