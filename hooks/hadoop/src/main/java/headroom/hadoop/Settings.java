package headroom.hadoop;

/** The properties that the hooks read from Hadoop's configuration. */
final class Settings {
  /** Addresses of the schedulers' hooks (http or https, no path), separated by commas. Without one the hooks do nothing. */
  static final String URL = "headroom.url";

  /** The address that stands for none: Hadoop's options lose an empty one, and a site's would show through. */
  static final String OFF = "off";

  /** File with the certificate of the cluster's authority; an https address needs it. */
  static final String CA = "headroom.ca";

  /** Names that file where the configuration does not. */
  static final String CA_VARIABLE = "HEADROOM_CA";

  /** File with the token of the cluster's hooks; sent over https only. */
  static final String TOKEN_FILE = "headroom.token-file";

  /** Names that file where the configuration does not. */
  static final String TOKEN_FILE_VARIABLE = "HEADROOM_TOKEN_FILE";

  /** After how many milliseconds a request is given up. */
  static final String TIMEOUT_MS = "headroom.timeout-ms";

  static final int TIMEOUT_MS_DEFAULT = 2000;

  /** How often the fair scheduler asks for shares, in milliseconds. */
  static final String SHARES_INTERVAL_MS = "headroom.shares.interval-ms";

  /** How often an application master asks whether its job may stop, in milliseconds. */
  static final String STOP_INTERVAL_MS = "headroom.stop.interval-ms";

  static final int INTERVAL_MS_DEFAULT = 500;

  /** Below this, asking would be a load of its own. */
  static final int INTERVAL_MS_MIN = 50;

  /** Whether {@link EarlyStopSpeculator} also speculates as Hadoop's own does; true unless said. */
  static final String SPECULATE = "headroom.speculate";

  /** By which policy of Headroom's map tasks are copied and put in order; unless said, as Hadoop does alone. */
  static final String POLICY = "headroom.speculation";

  /** The policy that is Hadoop's own. */
  static final String POLICY_DEFAULT = "default";

  /** Whether maps that run are ended too when the job has what it promised; false unless said. */
  static final String END_RUNNING = "headroom.end-running";

  /** The input format that {@link EarlyStopInputFormat} wraps; TextInputFormat unless said. */
  static final String INPUT_FORMAT = "headroom.inputformat";

  /** How {@link EarlyStopProvider} stops jobs early: "input" (unless said) or "speculator". */
  static final String EARLY_STOP = "headroom.early-stop";

  private Settings() {}
}
