// Package headroom is the front door of the repository; it holds no code.
//
// Headroom keeps a cluster of servers under its power budget and spends the
// watts that are left on the jobs that matter. Four programs make it up: powerd
// on every node, three or five coordinators, a scheduler beside one of them, and
// powerlab to try all of it on one machine.
//
// Start at README.md for what it guarantees and a demonstration, at
// docs/architecture.md for how a watt and a job travel through the packages, and
// at docs/glossary.md for the words. The tests in this folder hold the house
// together: which package may import which, what every package must explain.
package headroom
