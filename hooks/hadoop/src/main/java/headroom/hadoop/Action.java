package headroom.hadoop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** What a policy gives the next container to. */
final class Action {
  /** A copy of a running task; otherwise a waiting task. */
  final boolean copy;

  final int task;

  Action(boolean copy, int task) {
    this.copy = copy;
    this.task = task;
  }

  /** One answer to POST /v1/jobs/JOB/speculate about a job of so many tasks. */
  static List<Action> parse(JsonNode answer, int tasks) throws IOException {
    List<Action> actions = new ArrayList<>();
    for (JsonNode entry : Json.array(answer, "actions")) {
      String kind = Json.text(entry, "kind");
      if (!kind.equals("launch") && !kind.equals("copy")) {
        throw new IOException("\"kind\" must be launch or copy: " + kind);
      }
      actions.add(new Action(kind.equals("copy"), (int) Json.whole(entry, "task", 0, tasks - 1L)));
    }
    return actions;
  }
}
