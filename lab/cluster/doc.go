// Package cluster runs Headroom's own programs on this machine, for the demonstration, tests
// and studies: a Group is a set of processes that end together, a Site a small cluster
// (coordinators, a scheduler, emulated nodes with powerd) on loopback addresses in one
// folder.
//
// The one idea: every process of a Group carries the group's mark in its environment, and
// so does what it starts. Close ends what carries the mark, and nothing else, whatever
// session or parent it has by now. When the process that holds a Group is killed itself, a
// guard, which is a shell that waits for the end of a pipe, does the same.
//
// It decides nothing, and it never runs on a production node.
package cluster
