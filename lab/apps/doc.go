// Package apps holds the map and reduce programs that the demo and the
// tests run: word count and most frequent words, over plain text.
//
// The one idea: a task is an ordinary program that reads files and writes lines
// to standard output, so that the scheduler is tried with real work, not with
// sleeps. "wordcount" and "topn" are the map sides, "merge" and "mergetop" the
// reduce sides; all of them print "word<TAB>count" lines.
//
// Guarantees: the output depends only on the bytes of the input files, never on
// the order or the number of files, and every pass really reads and counts again.
// Memory is bounded by the number of different words, not by the size of a file.
// The package writes no file and never guesses at an unreadable input: it fails.
package apps
