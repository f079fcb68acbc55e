// Claims: the policy of preemption tells the speculator of each request that was taken back, and no event of Hadoop's own is
// taken for that: one that comes with an attempt's request would make a second request while the first is there.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.mapreduce.v2.api.records.TaskAttemptId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskType;
import org.apache.hadoop.mapreduce.v2.app.AppContext;
import org.apache.hadoop.mapreduce.v2.app.speculate.SpeculatorEvent;
import org.apache.hadoop.mapreduce.v2.util.MRBuilderUtils;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.event.Event;
import org.apache.hadoop.yarn.event.EventHandler;
import org.junit.jupiter.api.Test;

class DeallocationNoticeTest {
  private final TaskId task = MRBuilderUtils.newTaskId(MRBuilderUtils.newJobId(ApplicationId.newInstance(1, 1), 1), 7, TaskType.MAP);
  private final TaskAttemptId attempt = MRBuilderUtils.newTaskAttemptId(task, 0);

  @Test
  void theSpeculatorIsTold() {
    List<Event<?>> told = new ArrayList<>();
    EventHandler<Event<?>> events = told::add;
    DeallocationNotice policy = new DeallocationNotice();
    policy.init((AppContext) Proxy.newProxyInstance(
        AppContext.class.getClassLoader(), new Class<?>[] {AppContext.class}, (p, method, args) -> events));
    policy.handleCompletedContainer(attempt);
    assertEquals(1, told.size());
    SpeculatorEvent notice = (SpeculatorEvent) told.get(0);
    assertEquals(task, notice.getTaskID());
    assertTrue(DeallocationNotice.is(notice));
  }

  @Test
  void whatHadoopTellsIsNoNotice() {
    assertFalse(DeallocationNotice.is(new SpeculatorEvent(task, 1)), "an attempt has asked for a container");
    assertFalse(DeallocationNotice.is(new SpeculatorEvent(task, -1)), "an attempt has got one");
    assertFalse(DeallocationNotice.is(new SpeculatorEvent(attempt, false, 0)), "an attempt has started");
  }
}
