package headroom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;

/** One answer to POST /v1/spark/progress: unknown fields are ignored, whatever is missing or wrong spoils it whole. */
final class Answer {
  /** What stands for "as they are" in {@link #executors}. */
  static final int AS_THEY_ARE = -1;

  private static final int EXECUTORS_MAX = 10_000;
  private static final ObjectMapper MAPPER = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  final DropRatio ratio;
  final int executors;
  final boolean cancel;

  /** The part of its partitions that a map stage may leave out if it ends now. */
  final double end;

  private Answer(DropRatio ratio, int executors, boolean cancel, double end) {
    this.ratio = ratio;
    this.executors = executors;
    this.cancel = cancel;
    this.end = end;
  }

  static Answer parse(byte[] text) throws IOException {
    JsonNode a;
    try {
      a = MAPPER.readTree(text);
    } catch (JsonProcessingException e) {
      throw new IOException("the answer is no JSON: " + e.getOriginalMessage(), e);
    }
    if (a == null || !a.isObject()) {
      throw new IOException("the answer is no JSON object");
    }
    JsonNode theta = a.path("theta");
    if (!theta.isNumber() || !(theta.doubleValue() >= 0 && theta.doubleValue() <= 1)) {
      throw wrong("theta", "a number from 0 to 1", theta);
    }
    JsonNode seed = a.path("seed");
    if (!seed.isIntegralNumber() || !seed.canConvertToLong()) {
      throw wrong("seed", "a whole number", seed);
    }
    JsonNode cancel = a.path("cancel");
    if (!cancel.isBoolean()) {
      throw wrong("cancel", "true or false", cancel);
    }
    return new Answer(new DropRatio(theta.doubleValue(), seed.longValue()), executors(a.path("executors")), cancel.booleanValue(),
        end(a.path("end")));
  }

  private static double end(JsonNode n) throws IOException {
    if (n.isMissingNode() || n.isNull()) {
      return 0;
    }
    if (!n.isNumber() || !(n.doubleValue() >= 0 && n.doubleValue() <= 1)) {
      throw wrong("end", "a number from 0 to 1", n);
    }
    return n.doubleValue();
  }

  private static int executors(JsonNode n) throws IOException {
    if (n.isMissingNode() || n.isNull()) {
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
