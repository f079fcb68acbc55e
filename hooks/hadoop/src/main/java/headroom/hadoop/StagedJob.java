package headroom.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobSubmissionFiles;
import org.apache.hadoop.mapreduce.MRConfig;
import org.apache.hadoop.mapreduce.MRJobConfig;
import org.apache.hadoop.mapreduce.lib.input.TextInputFormat;

/** A job that lies in its staging folder, ready to be handed in. */
final class StagedJob {
  private final Configuration client;
  private final Path file;

  StagedJob(Configuration client, String dir) {
    this.client = client;
    this.file = new Path(dir, "job.xml");
  }

  /** Fits the early stop in. Returns what was done, in words. The file is the old one or the new one, never half. */
  String rewrite() throws IOException {
    FileContext fs = FileContext.getFileContext(file.toUri(), client);
    Configuration job = new Configuration(false);
    try (InputStream in = fs.open(file)) {
      job.addResource(in);
      job.size(); // reads it, while it is open
    }
    String done = fit(job);

    Path next = new Path(file.getParent(), "job.xml.headroom");
    try (OutputStream out =
        fs.create(
            next,
            EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE),
            Options.CreateOpts.perms(JobSubmissionFiles.JOB_FILE_PERMISSION))) {
      job.writeXml(out);
    }
    fs.setPermission(next, JobSubmissionFiles.JOB_FILE_PERMISSION); // whatever the umask made of it
    fs.rename(next, file, Options.Rename.OVERWRITE);
    return done;
  }

  /** Whatever else happens to the job, to its tasks it is one of YARN's. */
  static String fit(Configuration job) throws IOException {
    job.set(MRConfig.FRAMEWORK_NAME, MRConfig.YARN_FRAMEWORK_NAME);
    String way = job.get(Settings.EARLY_STOP, "input");
    switch (way) {
      case "input":
        return wrapInput(job);
      case "speculator":
        return replaceSpeculator(job);
      default:
        throw new IOException(Settings.EARLY_STOP + "=" + way + " must be input or speculator");
    }
  }

  private static String wrapInput(Configuration job) {
    if (!job.getBoolean("mapred.mapper.new-api", false)) {
      return "no early stop: the job uses the old mapred API; " + Settings.EARLY_STOP + "=speculator supports it";
    }
    String own = job.getRaw(MRJobConfig.INPUT_FORMAT_CLASS_ATTR);
    if (EarlyStopInputFormat.class.getName().equals(own)) {
      return "the input is already wrapped";
    }
    String inner = own == null ? TextInputFormat.class.getName() : own;
    job.set(Settings.INPUT_FORMAT, inner);
    job.set(MRJobConfig.INPUT_FORMAT_CLASS_ATTR, EarlyStopInputFormat.class.getName());
    return "early stop by wrapping " + inner;
  }

  /** A job that did not want to speculate does not. */
  private static String replaceSpeculator(Configuration job) {
    boolean speculates = job.getBoolean(MRJobConfig.MAP_SPECULATIVE, true) || job.getBoolean(MRJobConfig.REDUCE_SPECULATIVE, true);
    if (!speculates) {
      job.setBoolean(Settings.SPECULATE, false);
      job.setBoolean(MRJobConfig.MAP_SPECULATIVE, true); // without it the class is not loaded
    }
    job.set(MRJobConfig.MR_AM_JOB_SPECULATOR, EarlyStopSpeculator.class.getName());
    job.setIfUnset(MRJobConfig.MR_AM_PREEMPTION_POLICY, DeallocationNotice.class.getName());
    return "early stop in the speculator's place";
  }
}
