package headroom.spark;

import java.lang.reflect.Field;
import java.util.AbstractQueue;
import java.util.Collection;
import java.util.Iterator;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.spark.SparkContext;
import org.apache.spark.util.EventLoop;

/**
 * Spark's queue of the jobs that were submitted, with a look at each before Spark sees it. There all that a job is made from is
 * known, and none of its stages is made yet.
 */
final class Submissions extends AbstractQueue<Object> implements BlockingQueue<Object> {
  private static final String QUEUE = "org$apache$spark$util$EventLoop$$eventQueue";

  private final BlockingQueue<Object> queue;
  private final Consumer<Object> look;

  private Submissions(BlockingQueue<Object> queue, Consumer<Object> look) {
    this.queue = queue;
    this.look = look;
  }

  /** Fails where this Spark has no such queue. */
  static Field field() throws ReflectiveOperationException {
    Field f = EventLoop.class.getDeclaredField(QUEUE);
    if (!f.getType().equals(BlockingQueue.class)) {
      throw new NoSuchFieldException("EventLoop's queue is a " + f.getType().getName());
    }
    f.setAccessible(true);
    return f;
  }

  /** {@code look} is called by the thread that submits, and must not throw. */
  @SuppressWarnings("unchecked")
  static void watch(SparkContext sc, Consumer<Object> look) throws ReflectiveOperationException {
    Field f = field();
    Object loop = sc.dagScheduler().eventProcessLoop();
    // Spark's thread may wait at the old queue: it is kept, and what is put here goes there.
    f.set(loop, new Submissions((BlockingQueue<Object>) f.get(loop), look));
  }

  @Override
  public void put(Object event) throws InterruptedException {
    look.accept(event);
    queue.put(event);
  }

  @Override
  public boolean offer(Object event) {
    look.accept(event);
    return queue.offer(event);
  }

  @Override
  public boolean offer(Object event, long timeout, TimeUnit unit) throws InterruptedException {
    look.accept(event);
    return queue.offer(event, timeout, unit);
  }

  @Override
  public Object take() throws InterruptedException {
    return queue.take();
  }

  @Override
  public Object poll(long timeout, TimeUnit unit) throws InterruptedException {
    return queue.poll(timeout, unit);
  }

  @Override
  public Object poll() {
    return queue.poll();
  }

  @Override
  public Object peek() {
    return queue.peek();
  }

  @Override
  public int size() {
    return queue.size();
  }

  @Override
  public int remainingCapacity() {
    return queue.remainingCapacity();
  }

  @Override
  public int drainTo(Collection<? super Object> c) {
    return queue.drainTo(c);
  }

  @Override
  public int drainTo(Collection<? super Object> c, int most) {
    return queue.drainTo(c, most);
  }

  @Override
  public Iterator<Object> iterator() {
    return queue.iterator();
  }
}
