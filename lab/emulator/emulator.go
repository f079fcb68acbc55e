// Package emulator builds nodes made of physics: machines with RAPL, cpufreq and
// a power supply that exist as a file tree and a handful of processes.
//
// The one idea: an emulated node is a plant, not a stub. Package power follows
// from the real CPU use of the node's own processes and from frequency; limits
// are written to the same sysfs paths as on a real machine, enforced with lag and
// windows, and act back: the node's processes really run slower. powerd cannot
// tell the difference, apart from the root of its file tree.
//
// Three layers, each usable without the next:
//
//   - plant.Plant (package plant) is the physics alone, stepped in virtual time;
//   - Node is a plant behind the kernel's file tree (packages kernel and treefs):
//     Step polls what was written, steps the plant, publishes counters. Of plain
//     files it has no process, no goroutine, no clock of its own: tests step it in
//     virtual or real time;
//   - `powerlab node` owns a Node, steps it in real time with the CPU use that it
//     measures, slows the node's processes (package throttle), and keeps powerd and
//     a scheduler worker running on it.
//
// The tree is a FUSE mount where that is asked for and permitted: its files answer
// as the kernel's do, error numbers included. Else it is plain files: values only, without the kernel's error semantics. A
// write that the kernel would refuse is undone at the next step instead, and a
// value that the kernel would round is rounded at the next step. Writers put the
// whole value and its line break with one write at offset 0; readers take the
// first line.
//
// Guarantees: a value once read is rounded and written back only if the file still
// has it; nothing outside the node's folder is written; a process of `powerlab
// node` survives neither its stop nor its next start. The package never runs on a
// production node, and nothing that does imports it.
package emulator

import "headroom/lab/emulator/plant"

// Spec describes the parts of a machine.
type Spec = plant.Spec

// DefaultSpec is a one-socket server of 241 W at full load; see plant.DefaultSpec.
func DefaultSpec() Spec { return plant.DefaultSpec() }
