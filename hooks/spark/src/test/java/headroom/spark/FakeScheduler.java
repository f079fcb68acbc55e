package headroom.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;

/** A server on loopback that answers what a test tells it, and remembers what it was told. */
final class FakeScheduler implements AutoCloseable {
  interface Reply {
    void to(HttpExchange exchange) throws IOException;
  }

  static final String EXACT = "{\"theta\":0,\"seed\":1,\"cancel\":false}";

  private final HttpServer server;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private volatile Reply reply = e -> send(e, 200, EXACT);

  /** Method, path and token of each request. */
  final BlockingQueue<String> requests = new LinkedBlockingQueue<>();

  final BlockingQueue<JsonNode> reports = new LinkedBlockingQueue<>();

  FakeScheduler() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(threads);
    server.createContext("/", this::handle);
    server.start();
  }

  private void handle(HttpExchange e) throws IOException {
    requests.add(e.getRequestMethod() + " " + e.getRequestURI() + " " + e.getRequestHeaders().getFirst("Authorization"));
    reports.add(new ObjectMapper().readTree(body(e.getRequestBody())));
    reply.to(e);
    e.close();
  }

  private static byte[] body(InputStream in) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    for (int b = in.read(); b >= 0; b = in.read()) {
      all.write(b);
    }
    return all.toByteArray();
  }

  static void send(HttpExchange e, int status, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    e.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
    e.getResponseBody().write(bytes);
  }

  void reply(Reply r) {
    reply = r;
  }

  void reply(int status, String text) {
    reply = e -> send(e, status, text);
  }

  String url() {
    return "http://127.0.0.1:" + server.getAddress().getPort();
  }

  @Override
  public void close() {
    server.stop(0);
    threads.shutdownNow();
  }
}
