package headroom.apps;

import java.io.IOException;
import java.util.StringTokenizer;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.LongSumReducer;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * The N most frequent words of text, the most frequent first. A word is what stands between white space.
 *
 * <p>One reduce ranks all words. After an early stop the counts are those of the maps that ran.
 */
public class TopN extends Configured implements Tool {
  private static final String SIZE = "headroom.apps.topn";

  /** Counts each word once. */
  public static class Words extends Mapper<Object, Text, Text, LongWritable> {
    private static final LongWritable ONE = new LongWritable(1);
    private final Text word = new Text();
    private Slow slow;

    @Override
    protected void setup(Context context) {
      TaskAttemptID attempt = context.getTaskAttemptID();
      slow = new Slow(Slow.times(context.getConfiguration().get(Slow.TIMES, ""), attempt.getTaskID().getId(), attempt.getId()));
    }

    @Override
    protected void map(Object key, Text line, Context context) throws IOException, InterruptedException {
      StringTokenizer words = new StringTokenizer(line.toString());
      while (words.hasMoreTokens()) {
        word.set(words.nextToken());
        context.write(word, ONE);
      }
      slow.line();
    }
  }

  /** Sums up, and keeps the most frequent. */
  public static class Top extends Reducer<Text, LongWritable, Text, LongWritable> {
    private Ranking ranking;

    @Override
    protected void setup(Context context) {
      ranking = new Ranking(context.getConfiguration().getInt(SIZE, 0));
    }

    @Override
    protected void reduce(Text word, Iterable<LongWritable> counts, Context context) {
      long sum = 0;
      for (LongWritable n : counts) {
        sum += n.get();
      }
      ranking.add(word.toString(), sum);
    }

    @Override
    protected void cleanup(Context context) throws IOException, InterruptedException {
      for (Ranking.Entry e : ranking.entries()) {
        context.write(new Text(e.word), new LongWritable(e.count));
      }
    }
  }

  @Override
  public int run(String[] args) throws Exception {
    if (args.length != 3) {
      System.err.println("usage: topn IN OUT N");
      ToolRunner.printGenericCommandUsage(System.err);
      return 2;
    }
    getConf().setInt(SIZE, Integer.parseInt(args[2]));
    Job job = Job.getInstance(getConf(), "topn");
    job.setJarByClass(TopN.class);
    job.setMapperClass(Words.class);
    job.setCombinerClass(LongSumReducer.class);
    job.setReducerClass(Top.class);
    job.setNumReduceTasks(1);
    job.setOutputKeyClass(Text.class);
    job.setOutputValueClass(LongWritable.class);
    FileInputFormat.addInputPath(job, new Path(args[0]));
    FileOutputFormat.setOutputPath(job, new Path(args[1]));
    return job.waitForCompletion(true) ? 0 : 1;
  }

  /**
   * Exits with the job's status.
   *
   * @param args IN OUT N, after Hadoop's own options
   * @throws Exception where the job cannot be run
   */
  public static void main(String[] args) throws Exception {
    System.exit(ToolRunner.run(new TopN(), args));
  }
}
