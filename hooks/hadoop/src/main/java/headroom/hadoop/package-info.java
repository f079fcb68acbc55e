/**
 /**
  * Plug-ins that let an unmodified Hadoop follow Headroom: queue shares that follow the budget ({@link
  * headroom.hadoop.LiveFairScheduler}, in the resource manager) and jobs that stop early ({@link
  * headroom.hadoop.EarlyStopSpeculator}, in the application master, or {@link headroom.hadoop.EarlyStopInputFormat}, in
  * the map tasks).
  *
  * <p>They communicate only with Headroom's scheduler, as described in docs/hooks.md. They decide nothing: shares and
  * drops are committed before they are sent. Without {@code headroom.url}, without an answer and on any error they do
  * what Hadoop alone would do. No request is made while a lock of Hadoop's is held.
  */
package headroom.hadoop;
