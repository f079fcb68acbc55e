package headroom.apps.spark;

import java.util.Locale;
import java.util.function.Consumer;

/** Rows of StackExchange's Posts.xml: one post per line, its text as escaped HTML in the attribute Body. */
final class Posts {
  private static final String BODY = " Body=\"";

  private Posts() {}

  /** The words of a row's text, lower case letters and digits; none where the line is no row with a text. */
  static void words(String line, Consumer<String> word) {
    int begin = line.indexOf(BODY);
    if (begin < 0 || line.indexOf("<row ") < 0) {
      return;
    }
    begin += BODY.length();
    int end = line.indexOf('"', begin);
    split(plain(line.substring(begin, end < 0 ? line.length() : end)), word);
  }

  /** Without the entities of XML and, beneath them, the tags and entities of HTML. */
  private static String plain(String body) {
    String html = body.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#xA;", "\n").replace("&amp;", "&");
    return html.replaceAll("<[^>]*>", " ").replaceAll("&#?[A-Za-z0-9]+;", " ");
  }

  private static void split(String text, Consumer<String> word) {
    String lower = text.toLowerCase(Locale.ROOT);
    int begin = -1;
    for (int i = 0; i <= lower.length(); i++) {
      boolean inside = i < lower.length() && Character.isLetterOrDigit(lower.charAt(i));
      if (inside && begin < 0) {
        begin = i;
      } else if (!inside && begin >= 0) {
        word.accept(lower.substring(begin, i));
        begin = -1;
      }
    }
  }
}
