// Package emulator builds nodes that simulate physics: machines with RAPL, cpufreq and a power
// supply that exist as a file tree and a few processes.
//
// The one idea: an emulated node is a plant, not a stub. Package power follows from the real CPU
// use of the node's own processes and from frequency. Limits are written to the same sysfs paths as
// on a real machine and are enforced with lag and windows: the node's processes really run slower.
// Apart from the root of its file tree, powerd cannot distinguish it from a real machine.
//
// There are three layers, each usable without the next:
//
//   - plant.Plant (package plant) is the physics alone, stepped in virtual time;
//   - Node is a plant behind the kernel's file tree (packages kernel and treefs): Step
//     polls what was written, steps the plant, and publishes counters. With plain files
//     it has no process, goroutine or clock of its own: tests step it in virtual or
//     real time;
//   - `powerlab node` owns a Node, steps it in real time with the measured CPU use,
//     slows the node's processes down (package throttle), and keeps powerd and a
//     scheduler worker running on it.
//
// The tree is plain files, which have values but no error semantics: a write that the kernel would
// refuse is undone at the next step, and a value that the kernel would round is rounded then.
// Writers put the whole value and its line break with one write at offset 0; readers take the first
// line. For tests, it can be a FUSE mount instead, whose files answer as the kernel's do.
//
// Guarantees: a value that was read is rounded and written back only if the file still has it.
// Nothing outside the node's folder is written. A process of `powerlab node` survives neither its
// stop nor its next start. The package never runs on a production node, and nothing that does
// imports it.
package emulator

import "headroom/lab/emulator/plant"

// Spec describes the parts of a machine.
type Spec = plant.Spec

// DefaultSpec is a one-socket server of 241 W at full load; see plant.DefaultSpec.
func DefaultSpec() Spec { return plant.DefaultSpec() }
