package headroom.spark;

import headroom.client.Addresses;
import headroom.client.JobToken;
import headroom.client.PinnedFiles;
import java.io.IOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Paths;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Sends progress to Headroom's scheduler (docs/hooks.md). A report ends within the timeout, however slowly the server
 * sends, and either returns a complete, checked answer or throws an IOException.
 */
final class SchedulerClient {
  private static final String PATH = "/v1/spark/progress";

  /** In the JSON that "scheduler hook token --user" prints, or by itself. */
  private static final Pattern USER_TOKEN = Pattern.compile("headroom-user-1\\.[\\w.-]*");

  private final Addresses schedulers;
  private final String token;

  /** Read for each report where there is no token; "" for none: it may be replaced while the application runs. */
  private final String tokenFile;

  /** The application's id: of a user's token the one of this application is made. */
  private final String application;

  private final int timeoutMs;

  /** Null in the clear. */
  private final PinnedFiles tls;

  SchedulerClient(URL base, String token, int timeoutMs) {
    this(Addresses.of(base), token, "", "", timeoutMs, null);
  }

  SchedulerClient(URL base, String token, String tokenFile, String application, int timeoutMs, PinnedFiles tls) {
    this(Addresses.of(base), token, tokenFile, application, timeoutMs, tls);
  }

  SchedulerClient(Addresses schedulers, String token, String tokenFile, String application, int timeoutMs, PinnedFiles tls) {
    this.schedulers = schedulers;
    this.token = token;
    this.tokenFile = tokenFile;
    this.application = application;
    this.timeoutMs = timeoutMs;
    this.tls = tls;
  }

  Answer report(byte[] progress) throws IOException, InterruptedException {
    return Answer.parse(schedulers.send(PATH, timeoutMs, tls, token(), progress));
  }

  private String token() throws IOException {
    if (!token.isEmpty() || tokenFile.isEmpty()) {
      return token;
    }
    try {
      String text = new String(Files.readAllBytes(Paths.get(tokenFile)), StandardCharsets.US_ASCII).trim();
      Matcher user = USER_TOKEN.matcher(text);
      return user.find() ? JobToken.of(user.group(), application) : text;
    } catch (InvalidPathException e) {
      throw new IOException(tokenFile + " is no file", e);
    }
  }
}
