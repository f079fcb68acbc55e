// Package apps contains the map and reduce programs of the demo and the tests: word count and most
// frequent words, over plain text.
//
// The one idea: a task is an ordinary program that reads files and writes lines to standard output,
// so the scheduler is tested with real work and not with sleeps.
//
// Guarantees: the output depends only on the bytes of the input files, not on their order or
// number. Memory is bounded by the number of different words. The package writes no file but the
// marks of attempts, and fails if an input is unreadable.
package apps
