package headroom.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;

/** A server on loopback with a certificate of its own making, which is its own authority. */
public final class SecureScheduler implements AutoCloseable {
  private static final String PASSWORD = "changeit";

  private final HttpsServer server;

  /** The file of its authority. */
  public final Path ca;

  /** The token of each request, "null" for none. */
  public final BlockingQueue<String> tokens = new LinkedBlockingQueue<>();

  public SecureScheduler(Path dir, String identity, String answer) throws Exception {
    Path store = dir.resolve("store.p12");
    ca = dir.resolve("ca.crt");
    keytool(store, "-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=test", "-ext", "san=uri:" + identity);
    keytool(store, "-exportcert", "-rfc", "-file", ca.toString());
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream in = Files.newInputStream(store)) {
      keys.load(in, PASSWORD.toCharArray());
    }
    KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(keys, PASSWORD.toCharArray());
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(factory.getKeyManagers(), null, null);
    server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setHttpsConfigurator(new HttpsConfigurator(context));
    server.createContext("/", e -> answer(e, answer.getBytes(StandardCharsets.UTF_8)));
    server.start();
  }

  private static void keytool(Path store, String... words) throws Exception {
    List<String> argv = new ArrayList<>();
    argv.add(Paths.get(System.getProperty("java.home"), "bin", "keytool").toString());
    argv.addAll(Arrays.asList(words));
    argv.addAll(Arrays.asList("-alias", "own", "-storetype", "PKCS12", "-keystore", store.toString(), "-storepass", PASSWORD));
    if (new ProcessBuilder(argv).redirectErrorStream(true).redirectOutput(store.resolveSibling("log").toFile()).start().waitFor() != 0) {
      throw new IOException(new String(Files.readAllBytes(store.resolveSibling("log")), StandardCharsets.UTF_8));
    }
  }

  private void answer(HttpExchange e, byte[] text) throws IOException {
    tokens.add(String.valueOf(e.getRequestHeaders().getFirst("Authorization")));
    while (e.getRequestBody().read() >= 0) {
      continue;
    }
    e.sendResponseHeaders(200, text.length);
    e.getResponseBody().write(text);
    e.close();
  }

  public String url() {
    return "https://127.0.0.1:" + server.getAddress().getPort();
  }

  @Override
  public void close() {
    server.stop(0);
  }
}
