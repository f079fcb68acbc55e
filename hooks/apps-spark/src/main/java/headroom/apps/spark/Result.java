package headroom.apps.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import headroom.spark.Estimate;

/** The one line that an application prints. Bounds that are unknown are not in it. */
final class Result {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Result() {}

  static ObjectNode of(String app) {
    return MAPPER.createObjectNode().put("app", app);
  }

  static void put(ObjectNode o, String field, Estimate e) {
    o.put(field, e.value());
    if (!Double.isNaN(e.low())) {
      o.put(field + "_low", e.low());
    }
    if (!Double.isNaN(e.high())) {
      o.put(field + "_high", e.high());
    }
  }

  static String line(ObjectNode o, long begunNanos) throws JsonProcessingException {
    o.put("seconds", (System.nanoTime() - begunNanos) / 1e9);
    return "RESULT " + MAPPER.writeValueAsString(o);
  }
}
