// Claims, on a real Spark: both applications are exact without drops; with them they say what was kept and scale by it;
// GraphX under stages=all is thinned where it reads its input only, and does not fail.
package headroom.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import headroom.spark.HeadroomShuffleManager;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AppsTest {
  private static final int VERTICES = 40;

  private JavaSparkContext sc;

  private void start(String theta, String stages) {
    sc = new JavaSparkContext(new SparkConf().setMaster("local[2]").setAppName("apps").set("spark.ui.enabled", "false")
        .set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.shuffle.manager", HeadroomShuffleManager.class.getName())
        .set("spark.headroom.theta", theta).set("spark.headroom.stages", stages));
  }

  @AfterEach
  void stop() {
    sc.stop();
  }

  private static JsonNode read(String line) throws Exception {
    assertTrue(line.startsWith("RESULT {"), line);
    return new ObjectMapper().readTree(line.substring("RESULT ".length()));
  }

  /** 1000 posts, each with "the" once, every second with "odd" twice. */
  private JsonNode words() throws Exception {
    List<String> posts = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      posts.add("  <row Id=\"" + i + "\" Body=\"the" + (i % 2 == 1 ? " odd odd" : "") + " w" + i + "\" />");
    }
    return read(WordPopularity.run(sc.parallelize(posts, 10), 2, 3, ""));
  }

  @Test
  void allWords() throws Exception {
    start("0", "input");
    JsonNode r = words();
    assertEquals("[{\"word\":\"odd\",\"count\":1000.0,\"count_low\":1000.0,\"count_high\":1000.0},"
        + "{\"word\":\"the\",\"count\":1000.0,\"count_low\":1000.0,\"count_high\":1000.0}]", r.get("words").toString());
    assertEquals("10 of 10", r.get("kept") + " of " + r.get("total"));
  }

  @Test
  void wordsOfSomePartitions() throws Exception {
    start("0.3", "input");
    JsonNode r = words();
    assertEquals("7 of 10 at 0.3", r.get("kept") + " of " + r.get("total") + " at " + r.get("theta"));
    // Partitions of 100 posts each: what is counted does not vary between them, so the estimate is right and sure.
    assertEquals(1000, r.get("words").get(1).get("count").asDouble(), 1e-9);
    assertEquals(1000, r.get("words").get(1).get("count_low").asDouble(), 1e-6);
    assertEquals(1000, r.get("words").get(1).get("count_high").asDouble(), 1e-6);
  }

  /** Every pair of 40 vertices, in random order: 40 * 39 * 38 / 6 triangles. */
  private JsonNode triangles(Path dir) throws Exception {
    List<String> edges = new ArrayList<>();
    for (int a = 0; a < VERTICES; a++) {
      for (int b = 0; b < a; b++) {
        edges.add(a + " " + b);
      }
    }
    Collections.shuffle(edges, new Random(1));
    Path file = dir.resolve("edges.txt");
    Files.write(file, edges);
    return read(Triangles.run(sc.sc(), file.toString(), 8));
  }

  @Test
  void allTriangles(@TempDir Path dir) throws Exception {
    start("0", "input");
    assertEquals(9880, triangles(dir).get("triangles").asDouble(), 0);
  }

  @ParameterizedTest
  @ValueSource(strings = {"input", "all"})
  void trianglesOfSomePartitions(String stages, @TempDir Path dir) throws Exception {
    start("0.25", stages);
    JsonNode r = triangles(dir);
    int total = r.get("total").asInt();
    int kept = r.get("kept").asInt();
    assertEquals((int) Math.ceil(total * 0.75), kept);
    assertEquals(r.get("found").asDouble() * Math.pow((double) total / kept, 3), r.get("triangles").asDouble(), 1e-6);
    assertEquals(9880, r.get("triangles").asDouble(), 0.15 * 9880);
    assertFalse(r.has("triangles_low"), "one sample does not tell its error");
  }
}
