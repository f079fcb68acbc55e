// Claims: exactly what is recorded is killed, whatever it does meanwhile; its absence is announced once, and only
// where there is no result; errors and answers that cannot be true drop nothing.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class EarlyStopTest {
  /** A job whose tasks are as the test sets them. */
  private static final class FakeJob implements EarlyStop.Job {
    final Map<Integer, MapTask> tasks = new TreeMap<>();
    final List<String> done = new ArrayList<>();

    void set(int number, MapTask.State state) {
      tasks.put(number, new MapTask(number, 10, state));
    }

    @Override
    public Map<Integer, MapTask> tasks() {
      return new TreeMap<>(tasks);
    }

    @Override
    public void kill(Collection<MapTask> killed) {
      killed.forEach(t -> done.add("kill " + t.number));
    }

    @Override
    public void uncount(MapTask task) {
      done.add("uncount " + task.number);
    }

    @Override
    public void announceAbsent(Collection<MapTask> absent) {
      absent.forEach(t -> done.add("absent " + t.number));
    }
  }

  private FakeScheduler scheduler;
  private FakeJob job;
  private EarlyStop stop;

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
    job = new FakeJob();
    job.set(0, MapTask.State.RESULT);
    job.set(1, MapTask.State.BEGUN);
    job.set(2, MapTask.State.WAITING);
    job.set(3, MapTask.State.WAITING);
    stop = new EarlyStop(scheduler.client(30_000), "job_1_0001", job, false);
  }

  @AfterEach
  void end() {
    scheduler.close();
  }

  private void answerStop(String text) {
    scheduler.answer("/v1/jobs/job_1_0001/stop", 200, text);
  }

  private void answerDrop(int status, String text) {
    scheduler.answer("/v1/jobs/job_1_0001/drop", status, text);
  }

  @Test
  void exactlyTheRecordedAreKilledOnce() {
    answerStop("{\"stop\":true,\"min_tasks\":3,\"dropped\":[]}");
    answerDrop(200, "{\"dropped\":[3]}");
    stop.ask();
    assertEquals("[kill 3]", job.done.toString());
    answerStop("{\"stop\":true,\"min_tasks\":3,\"dropped\":[3]}");
    stop.ask();
    stop.settle();
    assertEquals("[kill 3]", job.done.toString());
    assertEquals(1, scheduler.asked.stream().filter(a -> a.contains("/drop")).count(), "the floor is reached");
  }

  /** A map that runs is named once the job has what it promised, and is killed only after it is recorded. */
  @Test
  void whatRunsEndsWhereTheOwnerLetsIt() throws IOException {
    stop = new EarlyStop(scheduler.client(30_000), "job_1_0001", job, true);
    answerStop("{\"stop\":true,\"min_tasks\":1,\"dropped\":[]}");
    answerDrop(200, "{\"dropped\":[2,3]}");
    stop.ask();
    assertEquals("[kill 2, kill 3]", job.done.toString());
    job.set(2, MapTask.State.KILLED);
    job.set(3, MapTask.State.KILLED);
    answerStop("{\"stop\":true,\"min_tasks\":1,\"dropped\":[2,3],\"over\":true}");
    answerDrop(409, "{}");
    stop.ask();
    assertEquals("[kill 2, kill 3]", job.done.toString(), "what is not recorded is not killed");
    answerDrop(200, "{\"dropped\":[1,2,3]}");
    stop.ask();
    assertEquals("[kill 2, kill 3, kill 1]", job.done.toString());
  }

  @Test
  void absenceIsAnnouncedOnceWhenTheTaskHasEnded() {
    answerStop("{\"stop\":false,\"dropped\":[3]}");
    stop.ask();
    assertFalse(stop.settle());
    job.set(3, MapTask.State.KILLED);
    assertTrue(stop.settle());
    assertTrue(stop.settle());
    stop.ask();
    assertTrue(stop.settle());
    assertEquals("[kill 3, absent 3]", job.done.toString());
  }

  @Test
  void aRecordedTaskThatHasBegunIsKilledAndGivenTimeForALateResult() {
    answerStop("{\"stop\":true,\"min_tasks\":3,\"dropped\":[1]}");
    stop.ask();
    job.set(1, MapTask.State.KILLED);
    for (int i = 1; i < EarlyStop.ROUNDS_MIN; i++) {
      assertFalse(stop.settle());
    }
    assertEquals("[kill 1]", job.done.toString());
    assertTrue(stop.settle());
    assertEquals("[kill 1, absent 1]", job.done.toString());
  }

  @Test
  void aResultThatCameFirstCounts() {
    answerStop("{\"stop\":true,\"min_tasks\":2,\"dropped\":[0,1]}");
    stop.ask();
    job.set(1, MapTask.State.KILLED);
    stop.settle();
    job.set(1, MapTask.State.RESULT);
    assertTrue(stop.settle());
    assertEquals("[kill 1, uncount 1]", job.done.toString());
  }

  /** A new application master finds its tasks unscheduled at first. */
  @Test
  void whatIsRecordedIsKilledAsSoonAsItIsScheduled() {
    job.set(3, MapTask.State.NEW);
    answerStop("{\"stop\":false,\"dropped\":[3]}");
    stop.ask();
    assertFalse(stop.settle());
    assertEquals("[]", job.done.toString());
    answerStop("no answer any more");
    stop.ask();
    job.set(3, MapTask.State.WAITING);
    stop.settle();
    assertEquals("[kill 3]", job.done.toString());
  }

  @Test
  void notCommittedIsNotDropped() {
    answerStop("{\"stop\":true,\"min_tasks\":3,\"dropped\":[]}");
    for (int status : new int[] {404, 409, 500, 503}) {
      answerDrop(status, "{\"dropped\":[3]}");
      stop.ask();
    }
    answerDrop(200, "{\"dropped\":[3");
    stop.ask();
    stop.settle();
    assertEquals("[]", job.done.toString());
  }

  @Test
  void aRecordThatCannotBeThisJobsDropsNothing() {
    answerStop("{\"stop\":true,\"min_tasks\":3,\"dropped\":[3,4]}");
    stop.ask();
    assertTrue(stop.settle());
    assertEquals("[]", job.done.toString());
  }
}
