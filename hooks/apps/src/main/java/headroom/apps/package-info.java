/**
 * MapReduce applications whose answers stay sensible when map tasks are dropped, next to those of Hadoop's examples:
 * {@link headroom.apps.TopN}, {@link headroom.apps.HistogramMovies} and {@link headroom.apps.Pi}.
 */
package headroom.apps;
