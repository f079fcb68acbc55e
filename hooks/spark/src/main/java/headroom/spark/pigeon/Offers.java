package headroom.spark.pigeon;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.WorkerOffer;

/**
 * The two places where Spark on Scala 2.12 and on 2.13 differ: TaskSchedulerImpl.resourceOffers has other types of sequences, and WorkerOffer
 * another type of resources.
 */
final class Offers {
  private static final String METHOD = "resourceOffers";
  private static final int CORES = 2;

  private final MethodHandle method;
  private final Constructor<?> offer;

  private Offers(MethodHandle method, Constructor<?> offer) {
    this.method = method;
    this.offer = offer;
  }

  /** Fails where this Spark has them in a third way. The lookup is that of the class that overrides the method. */
  static Offers of(MethodHandles.Lookup by) throws ReflectiveOperationException {
    for (Method m : TaskSchedulerImpl.class.getDeclaredMethods()) {
      if (m.getName().equals(METHOD) && m.getParameterCount() == 2) {
        Class<?> type = m.getParameterTypes()[0];
        by.lookupClass().getDeclaredMethod(METHOD, type, boolean.class); // or it would not be overridden
        return new Offers(by.unreflectSpecial(m, by.lookupClass()), WorkerOffer.class.getConstructors()[0]);
      }
    }
    throw new NoSuchMethodException(TaskSchedulerImpl.class.getName() + "." + METHOD);
  }

  /** Spark's own resourceOffers. */
  Object call(TaskSchedulerImpl scheduler, Object offers, boolean all) {
    try {
      return method.invoke(scheduler, offers, all);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(METHOD, e);
    }
  }

  /** The same offer with so many cores. */
  WorkerOffer withCores(WorkerOffer o, int cores) {
    Object[] values = new Object[o.productArity()];
    for (int i = 0; i < values.length; i++) {
      values[i] = i == CORES ? Integer.valueOf(cores) : o.productElement(i);
    }
    try {
      return (WorkerOffer) offer.newInstance(values);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(WorkerOffer.class.getName(), e);
    }
  }
}
