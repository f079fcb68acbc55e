/**
 * Spark applications whose answers stay sensible when partitions are dropped, and which say by how much:
 * {@link headroom.apps.spark.WordPopularity} and {@link headroom.apps.spark.Triangles}. Each prints one line of JSON,
 * begun by RESULT, on standard output. {@link headroom.apps.spark.Rounds} has no answer: it runs, for those who look at that.
 */
package headroom.apps.spark;
