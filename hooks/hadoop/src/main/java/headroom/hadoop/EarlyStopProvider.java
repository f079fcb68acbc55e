package headroom.hadoop;

import java.io.IOException;
import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapred.YARNRunner;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.MRConfig;
import org.apache.hadoop.mapreduce.protocol.ClientProtocol;
import org.apache.hadoop.mapreduce.protocol.ClientProtocolProvider;
import org.apache.hadoop.security.Credentials;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Adds early stops to jobs that set their input format or speculation in code, where a -D option is overwritten. With
 * {@code mapreduce.framework.name=yarn-headroom} and this jar on the client's class path jobs are submitted to YARN as
 * usual, but {@link StagedJob} rewrites their staged job.xml just before submission. If that fails, the job is
 * submitted unchanged.
 */
public class EarlyStopProvider extends ClientProtocolProvider {
  static final String FRAMEWORK = "yarn-headroom";

  private static final Logger LOG = LoggerFactory.getLogger(EarlyStopProvider.class);

  @Override
  public ClientProtocol create(Configuration conf) throws IOException {
    return FRAMEWORK.equals(conf.get(MRConfig.FRAMEWORK_NAME)) ? new Runner(conf) : null;
  }

  @Override
  public ClientProtocol create(InetSocketAddress address, Configuration conf) throws IOException {
    return create(conf);
  }

  @Override
  public void close(ClientProtocol protocol) throws IOException {
    if (protocol instanceof YARNRunner) {
      ((YARNRunner) protocol).close();
    }
  }

  private static final class Runner extends YARNRunner {
    private final Configuration conf;

    Runner(Configuration conf) {
      super(conf);
      this.conf = conf;
    }

    @Override
    public JobStatus submitJob(JobID id, String dir, Credentials credentials) throws IOException, InterruptedException {
      Faults faults = new Faults(LOG);
      faults.run(id + " is submitted unchanged: its job.xml could not be rewritten", () -> LOG.info("{}: {}", id, new StagedJob(conf, dir).rewrite()));
      faults.run(id + " has hooks without a token", () -> {
        if (JobCredentials.narrow(credentials, JobCredentials.application(id))) {
          LOG.info("{}: its hooks have a token for this job alone", id);
        }
      });
      return super.submitJob(id, dir, credentials);
    }
  }
}
