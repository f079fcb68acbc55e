package headroom.spark;

import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Tells the scheduler how far the application is and does what it answers: {@code
 * spark.plugins=headroom.spark.HeadroomPlugin}. In the driver only; without {@code spark.headroom.url} it does nothing.
 */
public class HeadroomPlugin implements SparkPlugin {
  private static final String PLUGINS = "spark.plugins";

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

    @Override
    public Map<String, String> init(SparkContext context, PluginContext unused) {
      sc = context;
      hide(context);
      Session session = Session.of(context);
      if (session.settings.url != null) {
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
      Reporter r = new Reporter(session, progress, new Control(Control.of(sc), session), app, attempt(sc));
      try {
        r.start();
        reporter = r;
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
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
