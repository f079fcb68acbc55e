package headroom.hadoop;

import java.io.IOException;
import org.apache.hadoop.mapreduce.InputSplit;
import org.apache.hadoop.mapreduce.RecordReader;
import org.apache.hadoop.mapreduce.TaskAttemptContext;

/** The reader of a dropped map: it counts what it does not read. */
final class NothingReader<K, V> extends RecordReader<K, V> {
  @Override
  public void initialize(InputSplit split, TaskAttemptContext context) throws IOException, InterruptedException {
    context.getCounter(EarlyStopCounter.DROPPED_TASKS).increment(1);
    context.getCounter(EarlyStopCounter.DROPPED_BYTES).increment(Math.max(0, split.getLength()));
  }

  @Override
  public boolean nextKeyValue() {
    return false;
  }

  @Override
  public K getCurrentKey() {
    return null;
  }

  @Override
  public V getCurrentValue() {
    return null;
  }

  @Override
  public float getProgress() {
    return 1;
  }

  @Override
  public void close() {}
}
