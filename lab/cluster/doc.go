// Package cluster runs Headroom's own programs on this machine, for the demonstration, tests and
// studies. A Group is a set of processes that end together. A Site is a small cluster
// (coordinators, a scheduler, emulated nodes with powerd) on loopback addresses in one folder.
//
// The one idea: every process of a Group has the group's mark in its environment, and its children
// inherit it. Close ends all processes with the mark, and no others, whatever their session or
// parent. If the process that holds a Group is killed itself, a guard does the same: a shell that
// waits for the end of a pipe.
//
// It makes no decisions, and it never runs on a production node.
package cluster
