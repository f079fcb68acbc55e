// Package cgroup holds each started program, with all that it starts, in a control group (version 2) of its own.
//
// The one idea: a process can leave its parent, its process group and its session, but not its cgroup.
//
// Guarantees: a program is in its cgroup from its first instruction. After a nil error of End no process of the group
// runs and its cgroup is removed. A process that moved elsewhere below the room is killed when a group ends. What a
// killed process left is killed by the next Open with the same record, which touches only what the record names.
//
// Without cgroups (version 1 alone, or no permission), a group is what carries its mark in the environment. This process
// then adopts orphans, and kills all of them when its last group ends.
//
// It enables no controller outside of what was delegated to it, moves no process but its own, and never removes a
// cgroup that it did not make.
package cgroup
