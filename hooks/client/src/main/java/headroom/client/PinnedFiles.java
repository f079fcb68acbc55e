package headroom.client;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import javax.net.ssl.SSLSocketFactory;

/**
 * The files of TLS connections, read again when they change: an application lives longer than its certificate. Files
 * that cannot be read, or do not match yet, leave the old ones in use.
 */
public final class PinnedFiles {
  private final String[] files;
  private String stamps;
  private SSLSocketFactory factory;

  PinnedFiles(String... files) throws IOException {
    this.files = files;
    stamps = stamps();
    factory = Pinned.read(files[0], files[1], files[2]);
  }

  /** For the next request. It is another one after a change, so that no connection of the old one is used again. */
  synchronized SSLSocketFactory factory() {
    String found = stamps();
    if (!found.equals(stamps)) {
      try {
        factory = Pinned.read(files[0], files[1], files[2]);
        stamps = found;
      } catch (IOException e) {
        return factory;
      }
    }
    return factory;
  }

  private String stamps() {
    StringBuilder all = new StringBuilder();
    for (String file : files) {
      if (!file.isEmpty()) {
        try {
          BasicFileAttributes a = Files.readAttributes(Paths.get(file), BasicFileAttributes.class);
          all.append(a.fileKey()).append(' ').append(a.lastModifiedTime()).append(' ').append(a.size()).append(' ');
        } catch (IOException e) {
          all.append("missing ");
        }
      }
    }
    return all.toString();
  }
}
