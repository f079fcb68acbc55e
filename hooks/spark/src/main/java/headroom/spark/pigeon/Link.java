package headroom.spark.pigeon;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import headroom.client.Request;
import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One master's address, polled as long as the application runs: one thread sends the application's state when it
 * changes and once a second, the other waits for grants.
 */
final class Link {
  private static final Logger LOG = LoggerFactory.getLogger(Link.class);
  private static final String REPORT = "/headroom.v1.SlotService/Report";
  private static final String AWAIT = "/headroom.v1.SlotService/Await";
  private static final int TIMEOUT_MS = 2_000;
  private static final int AWAIT_MS = 5_000;

  /** Between two reports where nothing changes, and between two looks at a master that is not active. */
  private static final long ALIVE_MS = 1_000;

  private static final long LOOK_MS = 250;

  /** An answer without grants that comes sooner is not worth asking for at once again. */
  private static final long QUICK_MS = 50;

  private final int number;
  private final URL address;
  private final Options options;
  private final Ledger ledger;
  private final String application;
  private final Runnable granted;
  private final Thread reporter;
  private final Thread waiter;
  private volatile boolean over;
  private volatile String trouble = "not contacted yet";

  Link(int number, URL address, Options options, Ledger ledger, String application, Runnable granted) {
    this.number = number;
    this.address = address;
    this.options = options;
    this.ledger = ledger;
    this.application = application;
    this.granted = granted;
    reporter = thread("report", this::report);
    waiter = thread("await", this::await);
  }

  private Thread thread(String what, Runnable body) {
    Thread t = new Thread(body, "headroom-pigeon-" + what + "-" + address.getAuthority());
    t.setDaemon(true);
    return t;
  }

  void start() {
    reporter.start();
    waiter.start();
  }

  /** What is wrong with this master; "" for nothing. */
  String trouble() {
    return trouble.isEmpty() ? "" : address.getAuthority() + ": " + trouble;
  }

  /** Ends both threads, and tells the master that the application ends. */
  void stop() {
    over = true;
    reporter.interrupt();
    waiter.interrupt();
    if (ledger.active(number)) {
      try {
        send(REPORT, JsonNodeFactory.instance.objectNode().put("application", application).put("bye", true).toString(), TIMEOUT_MS);
      } catch (IOException e) {
        LOG.info("end of the application not sent to {}; it will time out", address.getAuthority(), e);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private byte[] send(String path, String body, int timeoutMs) throws IOException, InterruptedException {
    return new Request(address, path, timeoutMs, options.tls).send(body.getBytes(StandardCharsets.UTF_8));
  }

  private void report() {
    loop(() -> {
      long version = ledger.version();
      String body = ledger.report(number, application, PigeonScheduler.now());
      if (body == null) {
        hear(send(AWAIT, ledger.await(number, application, 0), TIMEOUT_MS));
        pause(LOOK_MS, () -> false);
      } else {
        hear(send(REPORT, body, TIMEOUT_MS));
        pause(ALIVE_MS, () -> ledger.version() != version);
      }
    });
  }

  private void await() {
    loop(() -> {
      if (!ledger.active(number)) {
        pause(LOOK_MS, () -> ledger.active(number));
        return;
      }
      long began = PigeonScheduler.now();
      if (!hear(send(AWAIT, ledger.await(number, application, AWAIT_MS), AWAIT_MS + TIMEOUT_MS)) && PigeonScheduler.now() - began < QUICK_MS) {
        pause(LOOK_MS, () -> false);
      }
    });
  }

  private boolean hear(byte[] answer) throws IOException {
    Answer a = Answer.parse(answer, PigeonScheduler.now());
    boolean more = ledger.heard(number, a, PigeonScheduler.now());
    if (!trouble.isEmpty()) {
      LOG.info("master {} of {} at {} answers{}", a.master, a.group, address.getAuthority(), a.active ? "" : "; it is on standby");
    }
    trouble = "";
    if (more) {
      granted.run();
    }
    return more;
  }

  private interface Step {
    void run() throws IOException, InterruptedException;
  }

  private void loop(Step step) {
    while (!over) {
      try {
        try {
          step.run();
        } catch (IOException e) {
          if (trouble.isEmpty()) {
            LOG.warn("master at {} unreachable: {}", address.getAuthority(), e.getMessage());
          }
          trouble = String.valueOf(e.getMessage());
          pause(LOOK_MS, () -> false);
        }
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  /** Waits so long, or until the ledger has been changed so that there is a reason to go on. */
  private void pause(long ms, BooleanSupplier reason) throws InterruptedException {
    long until = PigeonScheduler.now() + ms;
    synchronized (ledger) {
      for (long left = ms; left > 0 && !over && !reason.getAsBoolean(); left = until - PigeonScheduler.now()) {
        ledger.wait(left);
      }
    }
  }
}
