/**
 /**
  * Lets an unmodified Spark follow Headroom: stages that compute only a part of their partitions ({@link
  * headroom.spark.HeadroomShuffleManager}), and progress reports and control ({@link headroom.spark.HeadroomPlugin}).
  * {@link headroom.spark.Headroom} returns to applications what was kept, and {@link headroom.spark.Scaling} scales
  * their counts and sums.
  * | <p>Running input stages end early at a deadline or an error bound, and stragglers get copies ({@code Ending} and
  * {@code TaskSets}), by methods of Spark's scheduler that are private only in Scala.
  * | <p>All of it is in the driver. Which partitions are dropped is settled once, when Spark registers a shuffle, by
  * putting Spark's own PartitionPruningRDD under it; executors see a stage of fewer tasks and need nothing from here.
  * On any error, and wherever a drop would not be safe, the stage runs completely.
  */
package headroom.spark;
