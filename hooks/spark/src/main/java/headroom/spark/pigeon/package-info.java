/**
 * Lets an unmodified Spark take part in two-layer dispatch: {@code spark.master=spark-pigeon://HOST:PORT,...} names the masters of the groups,
 * Spark's own standalone Master starts the executors, and a task begins on one only when a master has granted a slot of that node.
 *
 * <p>The one idea: the driver is a distributor. It tells each group how many slots its tasks want, split evenly, and which slots it
 * holds; which of its tasks takes a granted slot is decided when the grant is there. Spark's own scheduler still chooses among the tasks of
 * one priority, counts failures and keeps its books: it is only shown no more free cores than there are grants.
 *
 * <p>{@link headroom.spark.pigeon.Ledger} is the whole state and knows nothing of Spark; {@link headroom.spark.pigeon.Link} speaks with one master;
 * {@link headroom.spark.pigeon.PigeonScheduler} is the place where both meet.
 */
package headroom.spark.pigeon;
