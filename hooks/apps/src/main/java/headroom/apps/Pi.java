package headroom.apps;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Writer;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * An estimate of pi by points in a square.
 *
 * <p>Hadoop's own example divides by the points that were asked for; after an early stop its answer is too small by
 * the share of the maps that were dropped. This one divides by the points that were tried. It sets neither its input
 * format nor whether it speculates in code.
 */
public class Pi extends Configured implements Tool {
  private static final Text INSIDE = new Text("inside");
  private static final Text TRIED = new Text("tried");

  /** Tries the points of a line: the first one's number, and how many. */
  public static class Points extends Mapper<Object, Text, Text, LongWritable> {
    @Override
    protected void map(Object key, Text line, Context context) throws IOException, InterruptedException {
      String[] words = line.toString().trim().split(" ");
      long count = Long.parseLong(words[1]);
      context.write(INSIDE, new LongWritable(Halton.inside(Long.parseLong(words[0]), count)));
      context.write(TRIED, new LongWritable(count));
    }
  }

  /** Divides the sums. */
  public static class Estimate extends Reducer<Text, LongWritable, NullWritable, Text> {
    private long inside;
    private long tried;

    @Override
    protected void reduce(Text what, Iterable<LongWritable> counts, Context context) {
      long sum = 0;
      for (LongWritable n : counts) {
        sum += n.get();
      }
      if (what.equals(INSIDE)) {
        inside = sum;
      } else {
        tried = sum;
      }
    }

    @Override
    protected void cleanup(Context context) throws IOException, InterruptedException {
      String pi = tried == 0 ? "unknown" : String.valueOf(4.0 * inside / tried);
      context.write(NullWritable.get(), new Text(pi + " from " + tried + " points"));
    }
  }

  @Override
  public int run(String[] args) throws Exception {
    if (args.length != 3) {
      System.err.println("usage: pi MAPS POINTS WORKDIR");
      ToolRunner.printGenericCommandUsage(System.err);
      return 2;
    }
    Path in = new Path(args[2], "in");
    Path out = new Path(args[2], "out");
    writeInput(in, Integer.parseInt(args[0]), Long.parseLong(args[1]));
    Job job = Job.getInstance(getConf(), "pi");
    job.setJarByClass(Pi.class);
    job.setMapperClass(Points.class);
    job.setReducerClass(Estimate.class);
    job.setNumReduceTasks(1);
    job.setMapOutputKeyClass(Text.class);
    job.setMapOutputValueClass(LongWritable.class);
    job.setOutputKeyClass(NullWritable.class);
    job.setOutputValueClass(Text.class);
    FileInputFormat.addInputPath(job, in);
    FileOutputFormat.setOutputPath(job, out);
    if (!job.waitForCompletion(true)) {
      return 1;
    }
    System.out.println("pi is about " + firstLine(new Path(out, "part-r-00000")));
    return 0;
  }

  /** One file, so one map, for each part of the points. */
  private void writeInput(Path in, int maps, long points) throws IOException {
    FileSystem fs = in.getFileSystem(getConf());
    if (fs.exists(in)) {
      throw new IOException(in + " exists: name a folder that does not, or remove it");
    }
    for (int i = 0; i < maps; i++) {
      try (Writer w = new OutputStreamWriter(fs.create(new Path(in, String.format("part-%05d", i))), StandardCharsets.UTF_8)) {
        w.write(1 + i * points + " " + points + "\n");
      }
    }
  }

  private String firstLine(Path file) throws IOException {
    FileSystem fs = file.getFileSystem(getConf());
    try (BufferedReader r = new BufferedReader(new InputStreamReader(fs.open(file), StandardCharsets.UTF_8))) {
      return r.readLine();
    }
  }

  /**
   * Exits with the job's status.
   *
   * @param args MAPS POINTS WORKDIR, after Hadoop's own options
   * @throws Exception where the job cannot be run
   */
  public static void main(String[] args) throws Exception {
    System.exit(ToolRunner.run(new Pi(), args));
  }
}
