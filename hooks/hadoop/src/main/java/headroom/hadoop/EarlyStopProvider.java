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
 * Fits early stops to jobs that set their input format, or that they do not speculate, in code, where a -D is
 * overwritten. With {@code mapreduce.framework.name=yarn-headroom} and this jar on the client's class path jobs go to
 * YARN as ever, but for their staged job.xml, which {@link StagedJob} rewrites just before they are handed in. What
 * cannot be rewritten is submitted unchanged.
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
      try {
        LOG.info("{}: {}", id, new StagedJob(conf, dir).rewrite());
      } catch (IOException | RuntimeException e) {
        LOG.warn(id + " is submitted as it is: its job.xml could not be rewritten", e);
      }
      try {
        if (JobCredentials.narrow(credentials, JobCredentials.application(id))) {
          LOG.info("{}: its hooks have a token for this job alone", id);
        }
      } catch (IOException e) {
        LOG.warn("{}: its hooks have no token: {}", id, e.getMessage());
      }
      return super.submitJob(id, dir, credentials);
    }
  }
}
