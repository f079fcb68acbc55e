package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;

/** One answer to POST /v1/admit. */
final class Admission {
  /** Whether an application may start. */
  enum Decision {
    ADMITTED,
    QUEUED,
    REFUSED
  }

  final Decision decision;

  /** In words, with the numbers. */
  final String reason;

  Admission(Decision decision, String reason) {
    this.decision = decision;
    this.reason = reason;
  }

  static Admission parse(JsonNode answer) throws IOException {
    String word = Json.text(answer, "decision");
    for (Decision d : Decision.values()) {
      if (d.name().equalsIgnoreCase(word)) {
        return new Admission(d, Json.text(answer, "reason"));
      }
    }
    throw new IOException("\"decision\" must be admitted, queued or refused: " + word);
  }
}
