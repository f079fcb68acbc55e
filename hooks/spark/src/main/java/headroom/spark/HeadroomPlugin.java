package headroom.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Sends the progress of the application to the scheduler and applies its answers: {@code
 * spark.plugins=headroom.spark.HeadroomPlugin}. Only in the driver. Without {@code spark.headroom.url} it ends stages
 * at a bound that the owner has set ({@link Bound}), and otherwise does nothing.
 */
public class HeadroomPlugin implements SparkPlugin {
  private static final String PLUGINS = "spark.plugins";

  /** Between two looks at which stages may end: tasks take seconds. */
  private static final long LOOK_MS = 100;

  /** Called by Spark. */
  public HeadroomPlugin() {}

  /** None. */
  @Override
  public ExecutorPlugin executorPlugin() {
    return null;
  }

  @Override
  public DriverPlugin driverPlugin() {
    return new Driver();
  }

  /** A fault in any of these leaves the application as it would be without us. */
  private static final class Driver implements DriverPlugin {
    private SparkContext sc;
    private Progress progress;
    private volatile Reporter reporter;
    private ScheduledExecutorService looks;

    @Override
    public Map<String, String> init(SparkContext context, PluginContext unused) {
      sc = context;
      hide(context);
      Settings.hide(context.conf());
      Session session = Session.of(context);
      if (session.settings.mayEnd()) {
        progress = new Progress(session, this::changed);
        context.addSparkListener(progress);
      }
      return Collections.emptyMap();
    }

    /** Executors look up each plug-in that they are told of; without us there they need no jar of ours. */
    private static void hide(SparkContext sc) {
      String others = Arrays.stream(sc.conf().get(PLUGINS, "").split(","))
          .filter(name -> !name.trim().equals(HeadroomPlugin.class.getName())).collect(Collectors.joining(","));
      if (others.isEmpty()) {
        sc.conf().remove(PLUGINS);
      } else {
        sc.conf().set(PLUGINS, others);
      }
    }

    private void changed() {
      Reporter r = reporter;
      if (r != null) {
        r.want();
      }
    }

    /** The moment when the application has its id and no job has begun. */
    @Override
    public void registerMetrics(String app, PluginContext unused) {
      if (progress == null) {
        return;
      }
      Session session = Session.of(sc);
      TaskSets sets = taskSets(session);
      if (sets != null) {
        ends(session, sets);
      }
      if (session.settings.url == null) {
        return;
      }
      Page page = new Page(sc, session);
      Reporter r = new Reporter(session, progress, new Control(Control.of(sc), session), a -> page.show(a, System.nanoTime()),
          c -> copy(session, sets, c), app, attempt(sc));
      try {
        r.start();
        reporter = r;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }

    /** Null where this Spark's tasks are out of reach. */
    private TaskSets taskSets(Session session) {
      try {
        return TaskSets.of(sc);
      } catch (ReflectiveOperationException | LinkageError e) {
        session.trouble("early ends and copies are not possible with this Spark: " + e);
        return null;
      }
    }

    /** Looks every now and then which stages may end early. */
    private void ends(Session session, TaskSets sets) {
      Ending ending = new Ending(session, progress, sets);
      sc.addSparkListener(ending); // after progress, which it asks
      looks = java.util.concurrent.Executors.newSingleThreadScheduledExecutor(work -> {
        Thread t = new Thread(work, "headroom-ends");
        t.setDaemon(true);
        return t;
      });
      looks.scheduleWithFixedDelay(() -> look(session, ending), LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
    }

    private static void copy(Session session, TaskSets sets, Answer.Copy c) {
      if (sets != null && sets.copy(c.stage, c.attempt, c.partition)) {
        session.say("Headroom: a copy of partition " + c.partition + " of stage " + c.stage);
      }
    }

    private static void look(Session session, Ending ending) {
      try {
        ending.look(System.nanoTime());
      } catch (RuntimeException | LinkageError e) {
        session.trouble("stages are not ended early: " + e);
      }
    }

    /** YARN starts a driver of its own again where its node is lost. */
    private static int attempt(SparkContext sc) {
      String text = sc.applicationAttemptId().isEmpty() ? "" : sc.applicationAttemptId().get();
      return text.matches("[0-9]{1,9}") ? Integer.parseInt(text) : 0;
    }

    @Override
    public void shutdown() {
      Reporter r = reporter;
      if (looks != null) {
        looks.shutdownNow();
      }
      try {
        if (r != null) {
          r.stop();
        }
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
