// Claims: of a row the words of its text are told, without entities and tags; of other lines nothing.
package headroom.apps.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class PostsTest {
  @ParameterizedTest
  @CsvSource(delimiter = '|', value = {
    "  <row Id=\"1\" Body=\"Hello world\" Tags=\"x\" />|[hello, world]",
    "  <row Id=\"1\" Body=\"&lt;p&gt;It&amp;#39;s &lt;b class=&quot;x&quot;&gt;C3PO&lt;/b&gt;&lt;/p&gt;&#xA;a &amp;amp; b\" />|[it, s, c3po, a, b]",
    "  <row Id=\"1\" Title=\"Body of water\" />|[]",
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>|[]",
    "<posts>|[]",
    "  <row Id=\"1\" Body=\"cut off|[cut, off]",
    "  <row Id=\"1\" Body=\"\" />|[]"
  })
  void words(String line, String expected) {
    List<String> words = new ArrayList<>();
    Posts.words(line, words::add);
    assertEquals(expected, words.toString());
  }
}
