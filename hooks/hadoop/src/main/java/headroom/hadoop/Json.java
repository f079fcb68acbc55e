package headroom.hadoop;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.TreeSet;

/** Reads answers: unknown fields are ignored, missing or invalid ones are an error. */
final class Json {
  static final ObjectMapper MAPPER = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  private Json() {}

  static JsonNode object(byte[] text) throws IOException {
    JsonNode node;
    try {
      node = MAPPER.readTree(text);
    } catch (StackOverflowError e) { // in some releases of Jackson
      throw new IOException("the answer is nested too deeply", e);
    }
    if (node == null || !node.isObject()) {
      throw new IOException("the answer is not a JSON object");
    }
    return node;
  }

  static boolean bool(JsonNode object, String field) throws IOException {
    JsonNode node = object.path(field);
    if (!node.isBoolean()) {
      throw new IOException("\"" + field + "\" is not true or false: " + shown(node));
    }
    return node.booleanValue();
  }

  static String text(JsonNode object, String field) throws IOException {
    JsonNode node = object.path(field);
    if (!node.isTextual() || node.textValue().isEmpty()) {
      throw new IOException("\"" + field + "\" is not a string: " + shown(node));
    }
    return node.textValue();
  }

  static long whole(JsonNode object, String field, long min, long max) throws IOException {
    return wholeNumber(object.path(field), "\"" + field + "\"", min, max);
  }

  private static long wholeNumber(JsonNode node, String what, long min, long max) throws IOException {
    if (!node.isIntegralNumber() || !node.canConvertToLong() || node.longValue() < min || node.longValue() > max) {
      throw new IOException(what + " must be a whole number from " + min + " to " + max + ": " + shown(node));
    }
    return node.longValue();
  }

  static JsonNode array(JsonNode object, String field) throws IOException {
    JsonNode node = object.path(field);
    if (!node.isArray()) {
      throw new IOException("\"" + field + "\" is not a list: " + shown(node));
    }
    return node;
  }

  /** The numbers of map tasks. */
  static TreeSet<Integer> tasks(JsonNode object, String field) throws IOException {
    TreeSet<Integer> tasks = new TreeSet<>();
    for (JsonNode task : array(object, field)) {
      tasks.add((int) wholeNumber(task, "a task of \"" + field + "\"", 0, Integer.MAX_VALUE));
    }
    return tasks;
  }

  private static String shown(JsonNode node) {
    if (node.isMissingNode()) {
      return "missing";
    }
    if (node.isContainerNode()) {
      return node.isArray() ? "a list" : "an object"; // it may be as large and as deep as the answer
    }
    String text = node.toString();
    return text.length() > 60 ? text.substring(0, 60) + "..." : text;
  }
}
