package headroom.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.v2.api.records.TaskId;
import org.apache.hadoop.mapreduce.v2.api.records.TaskType;
import org.apache.hadoop.mapreduce.v2.app.AppContext;
import org.apache.hadoop.mapreduce.v2.app.speculate.DefaultSpeculator;

/** Hadoop's own speculator, which copies no map task while it is muted. It still handles reduce tasks. */
final class MutedSpeculator extends DefaultSpeculator {
  private volatile boolean muted;

  MutedSpeculator(Configuration conf, AppContext context) {
    super(conf, context);
  }

  void mute(boolean on) {
    muted = on;
  }

  @Override
  protected void addSpeculativeAttempt(TaskId task) {
    if (!muted || task.getTaskType() != TaskType.MAP) {
      super.addSpeculativeAttempt(task);
    }
  }
}
