package headroom.hadoop;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A server on loopback that answers what a test tells it, and remembers what it was asked. */
final class FakeScheduler implements AutoCloseable {
  interface Answer {
    void to(HttpExchange exchange) throws IOException;
  }

  private final HttpServer server;
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final Map<String, Answer> answers = Collections.synchronizedMap(new HashMap<>());
  final List<String> asked = Collections.synchronizedList(new ArrayList<>());

  FakeScheduler() throws IOException {
    server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.setExecutor(threads);
    server.createContext("/", this::handle);
    server.start();
  }

  private void handle(HttpExchange e) throws IOException {
    asked.add(e.getRequestMethod() + " " + e.getRequestURI() + " " + body(e.getRequestBody()));
    Answer answer = answers.get(e.getRequestURI().getPath());
    if (answer == null) {
      send(e, 404, "{}");
    } else {
      answer.to(e);
    }
    e.close();
  }

  private static String body(InputStream in) throws IOException {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    for (int b = in.read(); b >= 0; b = in.read()) {
      all.write(b);
    }
    return new String(all.toByteArray(), StandardCharsets.UTF_8);
  }

  static void send(HttpExchange e, int status, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    e.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
    e.getResponseBody().write(bytes);
  }

  void answer(String path, Answer answer) {
    answers.put(path, answer);
  }

  void answer(String path, int status, String text) {
    answer(path, e -> send(e, status, text));
  }

  SchedulerClient client(int timeoutMs) throws IOException {
    return new SchedulerClient(new URL(url()), timeoutMs);
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
