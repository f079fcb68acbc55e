// Package demo is `powerlab demo`: a small cluster of real processes that keeps its power budget
// while real jobs run, the budget is cut, the leader is killed and a powerd is killed.
//
// The one idea: the demo only observes; it is not part of the cluster. Package harness starts the
// built programs; the demo sends them an operator's commands, kills some of them, and then checks
// the guarantees from outside: the coordinators' answers, each node's own state and file tree, and
// the power of each plant. None of these values comes from the code whose guarantees are checked,
// and every value in summary.json follows from power.csv and the events.
//
// With --engine the jobs run on a real Hadoop or Spark on the nodes. Nothing is killed and the
// budget is lowered in steps; the coordinators move containers, drop tasks and let nodes sprint by
// themselves. Each job's dropped tasks are compared with its own counters.
//
// Guarantees: it needs no root and no network beyond loopback. It ends by itself, and an interrupt
// at any time ends every process that it started. It writes only to the output folder (a release of
// Hadoop or Spark is kept in the user's cache), and never touches the power controls of the machine.
package demo
