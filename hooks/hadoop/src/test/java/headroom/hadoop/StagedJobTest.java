// Claims: a staged job is fitted with the way that was asked for, keeps everything else, and is left as it is when
// it cannot be; a client that does not ask for it is none of ours.
package headroom.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ServiceLoader;
import java.util.stream.StreamSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.protocol.ClientProtocolProvider;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StagedJobTest {
  private static final String INPUT = "mapreduce.job.inputformat.class";

  @TempDir Path dir;
  private final Configuration job = new Configuration(false);

  @BeforeEach
  void start() {
    job.set("mapreduce.framework.name", EarlyStopProvider.FRAMEWORK);
    job.setBoolean("mapred.mapper.new-api", true);
    job.set("mine", "${kept}");
  }

  private Configuration rewritten() throws IOException {
    try (OutputStream out = Files.newOutputStream(dir.resolve("job.xml"))) {
      job.writeXml(out);
    }
    new StagedJob(new Configuration(), dir.toUri().toString()).rewrite();
    Configuration after = new Configuration(false);
    after.addResource(new org.apache.hadoop.fs.Path(dir.resolve("job.xml").toUri()));
    return after;
  }

  @Test
  void theInputIsWrapped() throws IOException {
    job.set(INPUT, "some.Format");
    Configuration after = rewritten();
    assertEquals(EarlyStopInputFormat.class.getName(), after.get(INPUT));
    assertEquals("some.Format", after.get(Settings.INPUT_FORMAT));
    assertEquals("yarn", after.get("mapreduce.framework.name"));
    assertEquals("${kept}", after.getRaw("mine"));
    assertFalse(Files.exists(dir.resolve("job.xml.headroom")));
  }

  @Test
  void anInputThatIsWrappedStays() throws IOException {
    job.set(INPUT, EarlyStopInputFormat.class.getName());
    job.set(Settings.INPUT_FORMAT, "some.Format");
    assertEquals("some.Format", rewritten().get(Settings.INPUT_FORMAT));
  }

  @Test
  void aJobOfTheOldApiKeepsItsInput() throws IOException {
    job.unset("mapred.mapper.new-api");
    Configuration after = rewritten();
    assertNull(after.get(INPUT));
    assertEquals("yarn", after.get("mapreduce.framework.name"));
  }

  @Test
  void aJobThatDoesNotSpeculateGetsAQuietSpeculator() throws IOException {
    job.set(Settings.EARLY_STOP, "speculator");
    job.setBoolean("mapreduce.map.speculative", false);
    job.setBoolean("mapreduce.reduce.speculative", false);
    Configuration after = rewritten();
    assertEquals(EarlyStopSpeculator.class.getName(), after.get("yarn.app.mapreduce.am.job.speculator.class"));
    assertTrue(after.getBoolean("mapreduce.map.speculative", false));
    assertFalse(after.getBoolean(Settings.SPECULATE, true));
    assertNull(after.get(INPUT));
  }

  @Test
  void aJobThatSpeculatesGoesOnDoingSo() throws IOException {
    job.set(Settings.EARLY_STOP, "speculator");
    job.setBoolean("mapreduce.map.speculative", false);
    job.setBoolean("mapreduce.reduce.speculative", true);
    Configuration after = rewritten();
    assertFalse(after.getBoolean("mapreduce.map.speculative", true));
    assertTrue(after.getBoolean(Settings.SPECULATE, true));
  }

  @Test
  void whatCannotBeRewrittenStaysAsItIs() throws IOException {
    job.set(Settings.EARLY_STOP, "nonsense");
    assertThrows(IOException.class, this::rewritten);
    assertTrue(new String(Files.readAllBytes(dir.resolve("job.xml")), StandardCharsets.UTF_8).contains("nonsense"));

    byte[] broken = "<configuration><property>".getBytes(StandardCharsets.UTF_8);
    Files.write(dir.resolve("job.xml"), broken);
    Files.deleteIfExists(dir.resolve(".job.xml.crc"));
    StagedJob staged = new StagedJob(new Configuration(), dir.toUri().toString());
    assertThrows(RuntimeException.class, staged::rewrite);
    assertArrayEquals(broken, Files.readAllBytes(dir.resolve("job.xml")));
  }

  @Test
  void hadoopFindsTheProvider() throws IOException {
    assertTrue(StreamSupport.stream(ServiceLoader.load(ClientProtocolProvider.class).spliterator(), false)
        .anyMatch(p -> p instanceof EarlyStopProvider));
    Configuration plain = new Configuration(false);
    plain.set("mapreduce.framework.name", "yarn");
    assertNull(new EarlyStopProvider().create(plain));
  }
}
