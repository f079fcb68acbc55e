/**
 /**
  * Lets an unmodified Spark take part in two-layer dispatch: {@code spark.master=spark-pigeon://HOST:PORT,...} lists
  * the masters of the groups, Spark's own standalone Master starts the executors, and a task starts on one only when a
  * master has granted a slot of that node.
  * | <p>The one idea: the driver is a distributor. It sends each group how many slots its tasks want, split evenly, and
  * which slots it holds; which of its tasks uses a granted slot is decided when the grant arrives. Spark's own
  * scheduler still chooses among the tasks of one priority and counts failures: it only sees as many free cores as
  * there are grants.
  * | <p>{@link headroom.spark.pigeon.Ledger} is the complete state and does not depend on Spark; {@link
  * headroom.spark.pigeon.Link} communicates with one master; {@link headroom.spark.pigeon.PigeonScheduler} connects
  * both.
  */
package headroom.spark.pigeon;
