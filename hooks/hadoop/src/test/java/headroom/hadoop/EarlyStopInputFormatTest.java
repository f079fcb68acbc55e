// Claims: a map reads its input unless it is told not to; then it reads nothing and counts what it did not read.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.input.FileSplit;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class EarlyStopInputFormatTest {
  /** Three records, whatever the split. */
  public static final class Three extends InputFormat<IntWritable, IntWritable> {
    @Override
    public List<InputSplit> getSplits(JobContext job) {
      return Collections.emptyList();
    }

    @Override
    public RecordReader<IntWritable, IntWritable> createRecordReader(InputSplit split, TaskAttemptContext context) {
      return new RecordReader<IntWritable, IntWritable>() {
        private int read;

        @Override
        public void initialize(InputSplit s, TaskAttemptContext c) {}

        @Override
        public boolean nextKeyValue() {
          return read++ < 3;
        }

        @Override
        public IntWritable getCurrentKey() {
          return new IntWritable(read);
        }

        @Override
        public IntWritable getCurrentValue() {
          return new IntWritable(read);
        }

        @Override
        public float getProgress() {
          return 0;
        }

        @Override
        public void close() {}
      };
    }
  }

  private static final String BEGIN = "/v1/jobs/job_1700000000000_0007/begin";

  private FakeScheduler scheduler;
  private final Configuration conf = new Configuration(false);

  @BeforeEach
  void start() throws IOException {
    scheduler = new FakeScheduler();
    conf.set(Settings.URL, scheduler.url());
    conf.setClass(Settings.INPUT_FORMAT, Three.class, InputFormat.class);
  }

  @AfterEach
  void end() {
    scheduler.close();
  }

  /** Records read, DROPPED_TASKS, DROPPED_BYTES. */
  private String run(TaskType type) throws IOException, InterruptedException {
    FileSplit split = new FileSplit(new org.apache.hadoop.fs.Path("file:///in"), 0, 42, null);
    TaskAttemptContextImpl context =
        new TaskAttemptContextImpl(conf, new TaskAttemptID("1700000000000", 7, type, 3, 1), new CountingReporter());
    RecordReader<IntWritable, IntWritable> reader =
        new EarlyStopInputFormat<IntWritable, IntWritable>().createRecordReader(split, context);
    reader.initialize(split, context);
    int records = 0;
    while (reader.nextKeyValue()) {
      records++;
    }
    return records + " " + context.getCounter(EarlyStopCounter.DROPPED_TASKS).getValue() + " "
        + context.getCounter(EarlyStopCounter.DROPPED_BYTES).getValue();
  }

  @Test
  void aDroppedMapReadsNothing() throws Exception {
    scheduler.answer(BEGIN, 200, "{\"run\":false}");
    assertEquals("0 1 42", run(TaskType.MAP));
    assertEquals("[POST " + BEGIN + " {\"task\":3,\"attempt\":1,\"bytes\":42}]", scheduler.asked.toString());
  }

  @Test
  void everythingElseRuns() throws Exception {
    scheduler.answer(BEGIN, 200, "{\"run\":true}");
    assertEquals("3 0 0", run(TaskType.MAP));
    for (String garbage : new String[] {"{\"run\":\"false\"}", "{}", "false", "{\"run\":fal"}) {
      scheduler.answer(BEGIN, 200, garbage);
      assertEquals("3 0 0", run(TaskType.MAP));
    }
    scheduler.answer(BEGIN, 404, "{\"run\":false}");
    assertEquals("3 0 0", run(TaskType.MAP));
    scheduler.answer(BEGIN, 200, "{\"run\":false}");
    assertEquals("3 0 0", run(TaskType.REDUCE));
    conf.unset(Settings.URL);
    assertEquals("3 0 0", run(TaskType.MAP));
  }
}
