package headroom.hadoop;

import org.slf4j.Logger;

/** Logs when a problem starts, changes or ends, and nothing in between. Safe for use by several threads. */
final class Repeated {
  private final Logger log;
  private String said = "";

  Repeated(Logger log) {
    this.log = log;
  }

  synchronized void trouble(String what) {
    if (!said.equals(what)) {
      log.warn("{}", what);
      said = what;
    }
  }

  synchronized void well(String what) {
    if (!said.isEmpty()) {
      log.info("{}", what);
      said = "";
    }
  }
}
