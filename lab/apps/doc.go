// Package apps contains the map and reduce programs of the demo and the tests: word count and most
// frequent words, over plain text.
//
// The one idea: a task is an ordinary program that reads files and writes lines to standard output,
// so the scheduler is tested with real work and not with sleeps. "wordcount" and "topn" are the map
// sides, "merge" and "mergetop" the reduce sides; all of them print "word<TAB>count" lines.
//
// Guarantees: the output depends only on the bytes of the input files, not on their order or
// number. Every pass really reads and counts again. Memory is bounded by the number of different
// words, not by the size of a file. The package writes no file, and fails if an input is
// unreadable.
package apps
