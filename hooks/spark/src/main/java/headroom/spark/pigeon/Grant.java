package headroom.spark.pigeon;

/** A slot of a node that a master has granted, and the executor whose task has it. */
final class Grant {
  final String instance;
  final long number;
  final String node;
  final boolean high;

  /** What shows the group's other master that the slot was granted. */
  final String proof;

  /** When it came. */
  final long since;

  /** Null while no task has it. */
  String executor;

  Grant(String instance, long number, String node, boolean high, String proof, long since) {
    this.instance = instance;
    this.number = number;
    this.node = node;
    this.high = high;
    this.proof = proof;
    this.since = since;
  }
}
