package headroom.spark.pigeon;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** SlotGrants of api/proto/headroom/v1/slots.proto. Unknown fields are ignored. */
final class Answer {
  private static final JsonFactory JSON = new JsonFactory();

  String group = "";
  String master = "";
  boolean active;
  String instance = "";
  final List<Grant> slots = new ArrayList<>();

  static Answer parse(byte[] text, long now) throws IOException {
    Answer a = new Answer();
    try (JsonParser p = JSON.createParser(text)) {
      if (p.nextToken() != JsonToken.START_OBJECT) {
        throw new IOException("the answer is not a JSON object");
      }
      while (p.nextToken() == JsonToken.FIELD_NAME) {
        a.field(p, now);
      }
    }
    if (a.active && (a.group.isEmpty() || a.instance.isEmpty())) {
      throw new IOException("an active master sent no group or instance");
    }
    return a;
  }

  private void field(JsonParser p, long now) throws IOException {
    String name = p.getCurrentName();
    p.nextToken();
    switch (name) {
      case "group":
        group = p.getText();
        break;
      case "master":
        master = p.getText();
        break;
      case "active":
        active = p.getBooleanValue();
        break;
      case "instance":
        instance = p.getText();
        break;
      case "slots":
        while (p.nextToken() == JsonToken.START_OBJECT) {
          slots.add(slot(p, now));
        }
        break;
      default:
        p.skipChildren();
    }
  }

  private static Grant slot(JsonParser p, long now) throws IOException {
    String instance = "";
    String node = "";
    long number = 0;
    boolean high = false;
    String proof = "";
    while (p.nextToken() == JsonToken.FIELD_NAME) {
      String name = p.getCurrentName();
      p.nextToken();
      switch (name) {
        case "instance":
          instance = p.getText();
          break;
        case "number":
          number = p.getLongValue();
          break;
        case "node":
          node = p.getText();
          break;
        case "high":
          high = p.getBooleanValue();
          break;
        case "proof":
          proof = p.getText();
          break;
        default:
          p.skipChildren();
      }
    }
    if (instance.isEmpty() || node.isEmpty() || number <= 0) {
      throw new IOException("a slot without instance, node or number");
    }
    return new Grant(instance, number, node, high, proof, now);
  }
}
