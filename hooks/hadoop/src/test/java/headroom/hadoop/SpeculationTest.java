// Claims: the scheduler hears how the maps stand, and what it says is carried out once: a copy is asked for and moved
// to the front as soon as it waits; a map that waits is moved only where its input differs from what would be next; what
// was given is not given twice; silence and nonsense leave the job to Hadoop's own speculator.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class SpeculationTest {
  private static final String PATH = "/v1/jobs/job_1_0001/speculate";

  /** A job whose tasks are as the test sets them. */
  private static final class FakeJob implements Speculation.Job {
    final Map<Integer, TaskView> tasks = new TreeMap<>();
    final List<String> done = new ArrayList<>();
    boolean launched = true;

    void waits(int number, long bytes) {
      tasks.put(number, new TaskView(number, bytes, false, 0, 0, true, 0, 0, ""));
    }

    void runs(int number, long bytes, boolean copyWaits, double progress) {
      tasks.put(number, new TaskView(number, bytes, false, 0, 1, copyWaits, 5000, progress, "n1:1"));
    }

    void done(int number, long bytes) {
      tasks.put(number, new TaskView(number, bytes, true, 1000, 0, false, 0, 0, ""));
    }

    @Override
    public List<TaskView> views() {
      return new ArrayList<>(tasks.values());
    }

    @Override
    public boolean copy(int task) {
      if (launched) {
        done.add("copy " + task);
      }
      return launched;
    }

    @Override
    public boolean toFront(int task) {
      if (tasks.get(task).waits) {
        done.add("front " + task);
      }
      return tasks.get(task).waits;
    }
  }

  private FakeScheduler scheduler;
  private FakeJob job;
  private Speculation speculation;
  private long nanos;

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
    job = new FakeJob();
    job.runs(0, 20, false, 0.5);
    job.done(1, 10);
    job.waits(2, 10);
    job.waits(3, 10);
    job.waits(4, 30);
    speculation = new Speculation(scheduler.client(30_000), "job_1_0001", "ras", job, () -> nanos);
  }

  @AfterEach
  void end() {
    scheduler.close();
  }

  private void answer(String actions) {
    scheduler.answer(PATH, 200, "{\"actions\":[" + actions + "]}");
  }

  private static String action(String kind, int task) {
    return "{\"kind\":\"" + kind + "\",\"task\":" + task + "}";
  }

  private String lastAsked() {
    return scheduler.asked.get(scheduler.asked.size() - 1);
  }

  @Test
  void theSchedulerHearsHowTheMapsStand() {
    answer("");
    speculation.ask();
    nanos += 3_000_000_000L;
    speculation.ask();
    assertEquals(
        "POST " + PATH + " {\"policy\":\"ras\",\"slots\":1,"
            + "\"waiting\":[{\"task\":2,\"bytes\":10},{\"task\":3,\"bytes\":10},{\"task\":4,\"bytes\":30}],"
            + "\"running\":[{\"task\":0,\"bytes\":20,\"copies\":1,\"progress\":0.5,\"elapsed_ms\":5000,\"since_ms\":3000,\"node\":\"n1:1\"}],"
            + "\"done\":[{\"task\":1,\"bytes\":10,\"took_ms\":1000}]}",
        lastAsked());
  }

  @Test
  void aCopyIsAskedForOnceAndMovedWhenItWaits() {
    answer(action("copy", 0));
    speculation.ask();
    assertEquals("[copy 0]", job.done.toString());
    assertFalse(speculation.settle(), "Hadoop has not made the attempt yet");
    speculation.ask();
    assertEquals("[copy 0]", job.done.toString(), "the answer came twice");
    assertTrue(lastAsked().contains("\"slots\":0"), "the next container is given away");
    assertTrue(lastAsked().contains("\"copies\":2"));
    job.runs(0, 20, true, 0.6);
    assertTrue(speculation.settle());
    assertEquals("[copy 0, front 0]", job.done.toString());
    speculation.ask();
    assertTrue(lastAsked().contains("\"slots\":0"), "it waits still");
    job.runs(0, 20, false, 0.7);
    speculation.ask();
    assertTrue(lastAsked().contains("\"slots\":1"), "it has its container");
  }

  @Test
  void aTaskThatIsNotLaunchedYetIsCopiedLater() {
    job.launched = false;
    answer(action("copy", 0));
    speculation.ask();
    assertEquals("[]", job.done.toString());
    job.launched = true;
    speculation.ask();
    assertEquals("[copy 0]", job.done.toString());
  }

  @Test
  void aMapThatWaitsIsMovedWhereItDiffers() {
    answer(action("launch", 3));
    speculation.ask();
    assertEquals("[]", job.done.toString(), "map 2 is as long, and Hadoop knows where its input lies");
    answer(action("launch", 4));
    speculation.ask();
    speculation.ask();
    assertEquals("[front 4]", job.done.toString());
    assertFalse(lastAsked().split("\"running\"")[0].contains("\"task\":4"), "it counts as one that runs");
  }

  @Test
  void whatHasChangedIsLeftAlone() {
    answer(action("copy", 1) + "," + action("copy", 2) + "," + action("launch", 0));
    speculation.ask();
    assertEquals("[]", job.done.toString());
  }

  @Test
  void silenceAndNonsenseLeaveItToHadoop() {
    assertFalse(speculation.holds(), "nobody has answered yet");
    answer("");
    speculation.ask();
    assertTrue(speculation.holds());
    for (String text : new String[] {"{}", "{\"actions\":[{\"kind\":\"kill\",\"task\":1}]}", "{\"actions\":[{\"kind\":\"copy\",\"task\":5}]}"}) {
      scheduler.answer(PATH, 200, text);
      nanos += Speculation.SILENCE_NANOS / 2;
      speculation.ask();
    }
    assertFalse(speculation.holds());
    assertEquals("[]", job.done.toString());
  }

  @Test
  void tooManyMapsAreLeftToHadoop() {
    for (int i = 0; i <= Speculation.TASKS_MAX; i++) {
      job.waits(i, 1);
    }
    answer("");
    speculation.ask();
    assertEquals(0, scheduler.asked.size());
    assertFalse(speculation.holds());
  }
}
