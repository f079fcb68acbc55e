// Claims: done is the partitions with a result now: once each, however many attempts; less those that an executor took
// along; a new attempt begins where its missing partitions say.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import org.junit.jupiter.api.Test;

class StageStateTest {
  private final StageState stage = new StageState(3, "map at X.java:1", 7, 4, 5);
  private long tasks;

  private void succeed(int partition) {
    TaskInfo t = begun(partition);
    t.finishTime_$eq(t.launchTime() + 100);
    stage.taskSucceeds(t);
  }

  @Test
  void aPartitionCountsOnce() {
    stage.begin(0, 4);
    succeed(0);
    succeed(0);
    stage.taskFails(begun(1), true);
    stage.taskFails(begun(1), false);
    begun(1);
    assertEquals("{\"id\":3,\"attempt\":0,\"name\":\"map at X.java:1\",\"kind\":\"map\",\"partitions\":5,\"kept\":4,\"shuffle\":7,"
        + "\"done\":1,\"running\":1,\"failed\":1,\"task_ms\":200,\"begun\":true,\"ended\":false,"
        + "\"typical_ms\":100,\"attempts\":[{\"partition\":1,\"host\":\"n1\",\"ms\":", told().replaceAll("[0-9]+}]}$", ""));
  }

  @Test
  void aLostResultIsTakenBack() {
    stage.begin(0, 4);
    succeed(0);
    succeed(1);
    stage.taskIsLost(1);
    assertEquals(1, stage.done());
    succeed(1);
    assertEquals(2, stage.done());
  }

  @Test
  void anotherAttemptDoesWhatIsMissing() {
    stage.begin(0, 4);
    for (int i = 0; i < 4; i++) {
      succeed(i);
    }
    stage.end();
    assertEquals(4, stage.done());
    stage.begin(1, 3);
    assertEquals(1, stage.done());
    succeed(2);
    assertEquals(2, stage.done());
    stage.begin(0, 4); // what is told late of an older one
    assertEquals(2, stage.done());
  }

  @Test
  void aLateTaskOfAnOlderAttemptNeverMakesTooMany() {
    stage.begin(0, 4);
    stage.begin(1, 1);
    for (int i = 0; i < 4; i++) {
      succeed(i);
    }
    assertEquals(4, stage.done());
  }

  @Test
  void whatIsGivenUpIsNoTask() {
    stage.begin(0, 4);
    succeed(0);
    succeed(1);
    stage.drop(2);
    stage.drop(3);
    assertEquals("2 2", stage.done() + " " + stage.tasks());
    stage.end();
    assertEquals(0, stage.begin(1, 1), "one result was lost");
    assertEquals("1 2", stage.done() + " " + stage.tasks());
    assertEquals(2, stage.begin(2, 4), "all of the output was thrown away");
    assertEquals("0 4", stage.done() + " " + stage.tasks());
  }

  private TaskInfo begun(int partition) {
    TaskInfo t = new TaskInfo(++tasks, partition, 0, partition, System.currentTimeMillis(), "1", "n1", TaskLocality.ANY(), false);
    stage.taskBegins(t);
    return t;
  }

  private String told() {
    ObjectNode o = new ObjectMapper().createObjectNode();
    stage.into(o);
    return o.toString();
  }
}
