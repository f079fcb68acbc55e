package headroom.hadoop;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.InputFormat;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;
import org.apache.hadoop.util.ReflectionUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Stops a job early from within its map tasks ({@code mapreduce.job.inputformat.class}): it wraps the job's input
 * format ({@code headroom.inputformat}), and a map that is told not to run reads nothing and counts itself. Such a map
 * succeeds, so the rest of Hadoop needs no change; but its process is started in vain. Running maps finish.
 *
 * @param <K> type of the keys
 * @param <V> type of the values
 */
public class EarlyStopInputFormat<K, V> extends InputFormat<K, V> {
  private static final Logger LOG = LoggerFactory.getLogger(EarlyStopInputFormat.class);

  @Override
  public List<InputSplit> getSplits(JobContext job) throws IOException, InterruptedException {
    return delegate(job.getConfiguration()).getSplits(job);
  }

  @Override
  public RecordReader<K, V> createRecordReader(InputSplit split, TaskAttemptContext context)
      throws IOException, InterruptedException {
    return mayRun(split, context)
        ? delegate(context.getConfiguration()).createRecordReader(split, context)
        : new NothingReader<K, V>();
  }

  @SuppressWarnings("unchecked")
  private InputFormat<K, V> delegate(Configuration conf) {
    Class<?> type = conf.getClass(Settings.INPUT_FORMAT, TextInputFormat.class, InputFormat.class);
    if (type == EarlyStopInputFormat.class) {
      throw new IllegalArgumentException(Settings.INPUT_FORMAT + " is the wrapper itself: set it to the input format to wrap");
    }
    return (InputFormat<K, V>) ReflectionUtils.newInstance(type, conf);
  }

  /** On any error the map runs. */
  private static boolean mayRun(InputSplit split, TaskAttemptContext context) {
    return new Faults(LOG).or(true, "a map asked whether to run", () -> asked(split, context));
  }

  private static boolean asked(InputSplit split, TaskAttemptContext context) throws InterruptedException {
    TaskAttemptID attempt = context.getTaskAttemptID();
    SchedulerClient client = SchedulerClient.of(
        context.getConfiguration(), context.getCredentials(), JobCredentials.application(attempt.getJobID()));
    if (client == null || attempt.getTaskType() != TaskType.MAP) {
      return true;
    }
    try {
      int task = attempt.getTaskID().getId();
      boolean run = client.begin(attempt.getJobID().toString(), task, attempt.getId(), Math.max(0, split.getLength()));
      if (!run) {
        LOG.info("Headroom dropped map task {}: it reads nothing", task);
      }
      return run;
    } catch (IOException e) {
      LOG.info("no answer, running the map: {}", e.getMessage());
      return true;
    }
  }
}
