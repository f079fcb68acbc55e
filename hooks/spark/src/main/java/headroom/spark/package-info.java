/**
 * What lets an unmodified Spark follow Headroom: stages that compute only a part of their partitions
 * ({@link headroom.spark.HeadroomShuffleManager}), progress that is told and control that is obeyed
 * ({@link headroom.spark.HeadroomPlugin}). Applications ask {@link headroom.spark.Headroom} what was kept and
 * {@link headroom.spark.Scaling} what that makes of their counts and sums.
 *
 * <p>Stages of the input that run end early at a deadline or an error bound, and tasks that straggle get copies
 * ({@code Ending} and {@code TaskSets}), by methods of Spark's scheduler that are private in Scala alone.
 *
 * <p>All of it is in the driver. Which partitions are dropped is settled once, when Spark registers a shuffle, by
 * putting Spark's own PartitionPruningRDD under it; executors see a stage of fewer tasks and need nothing from here.
 * On any error, and wherever a drop would not be safe, the stage runs exactly.
 */
package headroom.spark;
