// Claims: what docs/hooks.md shows is understood; anything less is no answer.
package headroom.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class AnswerTest {
  private static Answer parse(String text) throws IOException {
    return Answer.parse(text.getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void answersAreUnderstood() throws IOException {
    Answer a = parse("{\"theta\":0.2,\"seed\":42,\"executors\":4,\"cancel\":false,\"later\":1}");
    assertEquals(0.2, a.ratio.theta);
    assertEquals(42, a.ratio.seed);
    assertEquals(4, a.executors);
    assertFalse(a.cancel);
    assertEquals(Answer.AS_THEY_ARE, parse("{\"theta\":0,\"seed\":1,\"executors\":null,\"cancel\":true}").executors);
    assertEquals("0.0  0", a.end + " " + a.refused + " " + a.copies.size());
    Answer b = parse("{\"theta\":0,\"seed\":1,\"cancel\":false,\"end\":0.25,\"refused\":\"no\\nroom\","
        + "\"copies\":[{\"stage\":1,\"attempt\":0,\"partition\":7}]}");
    assertEquals("0.25 no room 1 7", b.end + " " + b.refused + " " + b.copies.get(0).stage + " " + b.copies.get(0).partition);
    assertTrue(parse("{\"theta\":1,\"seed\":-9223372036854775808,\"cancel\":true}").cancel);
  }

  @ParameterizedTest
  @ValueSource(strings = {
    "", "null", "[]", "17", "<html>busy</html>", "{\"theta\":0.2,\"seed\":42,\"cancel\":fal",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":false} and more", "{\"seed\":42,\"cancel\":false}", "{\"theta\":0.2,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":42}", "{\"theta\":null,\"seed\":42,\"cancel\":false}", "{\"theta\":\"0.2\",\"seed\":42,\"cancel\":false}",
    "{\"theta\":1.01,\"seed\":42,\"cancel\":false}", "{\"theta\":-0.01,\"seed\":42,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":4.2,\"cancel\":false}", "{\"theta\":0.2,\"seed\":92233720368547758070,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":0}", "{\"theta\":0.2,\"seed\":42,\"executors\":0,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":42,\"executors\":-1,\"cancel\":false}", "{\"theta\":0.2,\"seed\":42,\"executors\":1.5,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":42,\"executors\":10001,\"cancel\":false}",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"end\":1.5}", "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"end\":\"all\"}",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"refused\":true}", "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"copies\":{}}",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"copies\":[{\"stage\":1,\"attempt\":0}]}",
    "{\"theta\":0.2,\"seed\":42,\"cancel\":false,\"copies\":[{\"stage\":1,\"attempt\":0,\"partition\":-1}]}"
  })
  void garbageIsNoAnswer(String text) {
    assertThrows(IOException.class, () -> parse(text));
  }
}
