package headroom.client;

import java.io.IOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Where the schedulers of a cluster serve their hooks. One of them is active: a request that gets no answer goes to the
 * next address, and later requests begin with the one that answered last.
 */
public final class Addresses {
  private static final int PORT_MAX = 65_535;

  private final List<URL> all;
  private volatile int current;

  private Addresses(List<URL> all) {
    this.all = all;
  }

  /** One address. */
  public static Addresses of(URL one) {
    return new Addresses(Collections.singletonList(one));
  }

  /** A list of addresses, separated by commas: all of them http, or all https. */
  public static Addresses of(String text) throws MalformedURLException {
    List<URL> all = new ArrayList<>();
    for (String part : text.split(",", -1)) {
      URL url = new URL(part.trim());
      if (url.getHost().isEmpty() || url.getPort() > PORT_MAX || !url.getProtocol().matches("https?")) {
        throw new MalformedURLException("it must look like http://HOST:PORT");
      }
      if (!all.isEmpty() && !url.getProtocol().equals(all.get(0).getProtocol())) {
        throw new MalformedURLException("its addresses must be all of http or all of https");
      }
      all.add(url);
    }
    return new Addresses(Collections.unmodifiableList(all));
  }

  /** Whether requests go over TLS. */
  public boolean secure() {
    return all.get(0).getProtocol().equals("https");
  }

  /**
   * Sends JSON, or a request without a body if it is null. It ends within the timeout, whatever number of addresses is
   * tried. A scheduler that answers with another status is the active one.
   */
  public byte[] send(String path, int timeoutMs, PinnedFiles tls, String token, byte[] body) throws IOException, InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
    int left = timeoutMs;
    for (int tried = 1;; tried++) {
      int now = current;
      try {
        return new Request(all.get(now), path, left, tls).authorize(token).send(body);
      } catch (StatusException e) {
        throw e;
      } catch (IOException e) {
        current = (now + 1) % all.size();
        left = (int) TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
        if (tried == all.size() || left < 1) {
          throw e;
        }
      }
    }
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    for (URL url : all) {
      text.append(text.length() == 0 ? "" : ",").append(url);
    }
    return text.toString();
  }
}
