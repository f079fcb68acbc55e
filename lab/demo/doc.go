// Package demo is `powerlab demo`: a small cluster of real processes that holds
// its power budget while real jobs run, while the budget is cut, the leader is
// killed and a powerd is killed.
//
// The one idea: the demo only observes; it is not part of the cluster. It starts the built
// programs, tells them what an operator would tell them, kills some of them, and
// then judges the promises by what it can see from outside: what the
// coordinators answer, what each node's own state and file tree hold, and what
// each plant draws. Nothing it judges comes out of the code that makes the
// promise, and every figure of summary.json follows from power.csv and the events.
//
// With --engine the jobs run on a real Hadoop or Spark on the nodes (engine.go and beside
// it): nothing is killed, the budget steps down, and the coordinators move containers, drop
// tasks and let nodes sprint by themselves. What a job dropped is held against its own counters.
//
// Parts: text.go makes the input, fleet.go and lab.go start and stop processes,
// jobs.go and feed.go keep both priority classes busy, sampler.go looks,
// story.go acts, judge.go (a pure function) decides, the rest writes it down.
//
// Guarantees: needs no root and no network beyond loopback; ends by itself; an
// interrupt at any moment ends every process that it started; nothing is written
// outside the output folder but the text, once, in the user's cache folder, and a real
// cluster's folder, which is removed. It
// never touches the power controls of the machine it runs on.
package demo
