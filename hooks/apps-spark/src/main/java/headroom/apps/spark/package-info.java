/**
 * Spark applications whose answers stay sensible when partitions are dropped, and which say by how much:
 * {@link headroom.apps.spark.WordPopularity} and {@link headroom.apps.spark.Triangles}. Each prints one line of JSON,
 * begun by RESULT, on standard output.
 */
package headroom.apps.spark;
