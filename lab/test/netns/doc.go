// Package netns tests the built programs as a cluster of failing machines: every coordinator and
// every node is a real process in its own network namespace, behind a bridge on which nftables cuts
// links, in one direction or both.
//
// The one idea: the tests do not rely on the programs' own answers. While a scenario cuts, stops,
// kills, fills or freezes, a checker samples the emulated machines themselves ten times a second,
// and compares the sums of their caps and of their power with the budget. The operators' view is
// read by the command line, over TLS, from its own namespace.
//
// It needs root, the kernel's network namespaces, and the Debian packages of packages.txt. What is
// missing is reported as not run, and so is a file system that the machine does not allow to be
// created or frozen. A shell that waits for the end of the test's process cleans up, so that
// nothing remains of a killed test either. Outside its namespaces it opens no port.
package netns
