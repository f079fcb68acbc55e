package headroom.apps;

import java.io.IOException;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.DoubleWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.mapreduce.lib.reduce.LongSumReducer;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * How many movies have which average rating, in bins of half a star. The input has PUMA's form, one movie a line:
 * {@code movieId:user_rating,user_rating,...}.
 *
 * <p>After an early stop the numbers are those of the maps that ran: the shape holds, the sum does not.
 */
public class HistogramMovies extends Configured implements Tool {
  /** Puts each movie into its bin. */
  public static class Bins extends Mapper<Object, Text, DoubleWritable, LongWritable> {
    private static final LongWritable ONE = new LongWritable(1);
    private final DoubleWritable bin = new DoubleWritable();

    @Override
    protected void map(Object key, Text line, Context context) throws IOException, InterruptedException {
      bin.set(Ratings.bin(line.toString()));
      if (!Double.isNaN(bin.get())) {
        context.write(bin, ONE);
      }
    }
  }

  @Override
  public int run(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("usage: histmovies IN OUT");
      ToolRunner.printGenericCommandUsage(System.err);
      return 2;
    }
    Job job = Job.getInstance(getConf(), "histmovies");
    job.setJarByClass(HistogramMovies.class);
    job.setMapperClass(Bins.class);
    job.setCombinerClass(LongSumReducer.class);
    job.setReducerClass(LongSumReducer.class);
    job.setOutputKeyClass(DoubleWritable.class);
    job.setOutputValueClass(LongWritable.class);
    FileInputFormat.addInputPath(job, new Path(args[0]));
    FileOutputFormat.setOutputPath(job, new Path(args[1]));
    return job.waitForCompletion(true) ? 0 : 1;
  }

  /**
   * Exits with the job's status.
   *
   * @param args IN OUT, after Hadoop's own options
   * @throws Exception where the job cannot be run
   */
  public static void main(String[] args) throws Exception {
    System.exit(ToolRunner.run(new HistogramMovies(), args));
  }
}
