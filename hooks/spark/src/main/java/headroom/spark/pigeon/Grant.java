package headroom.spark.pigeon;

/** A slot of a node that a master has granted, and the executor whose task has it. */
final class Grant {
  final String instance;
  final long number;
  final String node;
  final boolean high;

  /** When it came. */
  final long since;

  /** Null while no task has it. */
  String executor;

  Grant(String instance, long number, String node, boolean high, long since) {
    this.instance = instance;
    this.number = number;
    this.node = node;
    this.high = high;
    this.since = since;
  }
}
