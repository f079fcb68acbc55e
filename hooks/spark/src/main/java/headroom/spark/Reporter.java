package headroom.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Sends the progress to the scheduler and forwards its answers: one report at a time, in its own thread. */
final class Reporter {
  private static final int SHUFFLES_MAX = 256;

  /** Between two reports, however fast stages follow upon each other. */
  private static final long PAUSE_MS = 100;

  private static final ObjectMapper MAPPER = new ObjectMapper();

  private final Session session;
  private final Progress progress;
  private final Control control;

  /** Is told of every answer. */
  private final Consumer<Answer> page;

  private final Consumer<Answer.Copy> copies;
  private final SchedulerClient client;
  private final String app;

  /** Counts the starts of the driver where the cluster starts it again; 0 where it says none. */
  private final int attempt;

  private final Thread thread = new Thread(this::run, "headroom-reports");

  private final Object lock = new Object();
  private boolean wanted;
  private boolean over;

  private long sequence;
  private boolean failing;

  /** {@code page} is told of every answer, {@code copies} of which tasks a copy is wanted. */
  Reporter(Session session, Progress progress, Control control, Consumer<Answer> page, Consumer<Answer.Copy> copies, String app, int attempt) {
    this.session = session;
    this.progress = progress;
    this.control = control;
    this.page = page;
    this.copies = copies;
    this.client = new SchedulerClient(session.settings.url, session.settings.token, session.settings.tokenFile,
        app, session.settings.timeoutMs, session.settings.tls);
    this.app = app;
    this.attempt = attempt;
    thread.setDaemon(true);
  }

  /**
   * Waits for the first answer, which says what the first job is to drop. Fails where it does not promise the deadline and the
   * owner would rather not run then: the SparkContext is not made.
   */
  void start() throws InterruptedException {
    report(false);
    if (session.settings.refuse && !session.refused().isEmpty()) {
      throw new IllegalStateException("Headroom: " + session.refused());
    }
    thread.start();
  }

  /** A stage or an executor came or went: tell it soon. */
  void want() {
    synchronized (lock) {
      wanted = true;
      lock.notifyAll();
    }
  }

  /** Tells it a last time, once the report under way has ended. */
  void stop() throws InterruptedException {
    synchronized (lock) {
      over = true;
      lock.notifyAll();
    }
    thread.join(2L * session.settings.timeoutMs);
    if (!thread.isAlive()) {
      report(true);
    }
  }

  private void run() {
    try {
      while (next()) {
        report(false);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** False when it is over. */
  private boolean next() throws InterruptedException {
    long begin = System.nanoTime();
    synchronized (lock) {
      for (;;) {
        long passedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begin);
        long left = (wanted ? PAUSE_MS : session.settings.intervalMs) - passedMs;
        if (over || left <= 0) {
          wanted = false;
          return !over;
        }
        lock.wait(left);
      }
    }
  }

  private void report(boolean ended) throws InterruptedException {
    try {
      Answer a = client.report(body(ended));
      session.answered(a.ratio, a.end, a.refused, System.nanoTime());
      failing = false;
      if (!ended) {
        control.follow(a, progress.executors(), System.nanoTime());
        a.copies.forEach(copies);
        page.accept(a);
      }
    } catch (IOException | RuntimeException e) {
      if (!failing) {
        session.trouble("a report to " + session.settings.url + " failed: " + e.getMessage());
      }
      failing = true;
    }
  }

  private byte[] body(boolean ended) throws JsonProcessingException {
    ObjectNode o = MAPPER.createObjectNode();
    o.put("job", session.settings.job.isEmpty() ? app : session.settings.job).put("run", session.settings.run);
    o.put("app", app).put("attempt", attempt);
    ObjectNode asks = o.putObject("asks");
    session.settings.asks.forEach(asks::put);
    o.put("sequence", ++sequence).put("ended", ended);
    progress.into(o);
    ArrayNode shuffles = o.putArray("shuffles");
    for (Kept k : session.newest(SHUFFLES_MAX)) {
      shuffles.addObject().put("id", k.shuffle()).put("total", k.total()).put("kept", k.kept())
          .put("theta", k.theta()).put("seed", k.seed()).put("input", k.input()).put("why", k.why());
    }
    o.put("surplus", session.surplus()).put("exact", session.exact()).put("trouble", session.trouble());
    return MAPPER.writeValueAsBytes(o);
  }
}
