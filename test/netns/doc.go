// Package netns tests the built programs as a cluster of machines that fail: every
// coordinator and every node is a real process in a network namespace of its own,
// behind a bridge on which nftables cuts what it is told to cut, in one direction
// or both.
//
// The one idea: nothing here is asked of the programs alone. While a scenario cuts,
// stops, kills, fills or freezes, a checker reads from the emulated machines
// themselves, ten times a second, which caps they hold and what they draw, and holds
// the sums against the budget; what operators are told is read by the command line
// from a namespace of its own, over TLS, as they would.
//
// It needs root, the kernel's network namespaces, and the Debian packages of
// packages.txt; what is missing is reported as not run, and so is a file system
// that the machine does not let be made or frozen. What a scenario makes is undone
// by a shell that waits for the end of the test's process, so that nothing is left
// of a test that was killed either. Outside its namespaces it opens no port.
package netns
