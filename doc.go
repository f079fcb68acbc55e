// Package headroom documents the repository; it has no code.
//
// Headroom keeps a cluster of servers under its power budget and gives the
// remaining watts to the jobs that matter most. Its programs are powerd on every
// node, three or five coordinators, a scheduler beside one of them, and powerlab
// to try all of it on one machine.
//
// README.md lists the guarantees and shows a demonstration, docs/README.md lists
// the documents by reader, docs/architecture.md describes the processes and
// packages, and docs/glossary.md the words. The tests in this folder check the
// repository as a whole: which package may import which, what every package must
// document, and that the documents are complete.
package headroom
