// Package experiment measures Headroom on real programs, in many short runs that may be interrupted:
// `powerlab campaign`.
//
// The one idea: a Spec lists what varies, what is measured and what is claimed. A campaign runs the
// variants of a spec in pairs, every second pair in the opposite order, and appends each finished run
// to a file of results at once. What a report judges is that file alone, so a campaign goes on where
// it stopped, on another machine too.
//
// Guarantees: a finished run is on disk before the next one begins, and no counted run is repeated. A
// run on a noisy machine is kept and marked, and is not counted. Bounds hold for all claims of a spec
// at once. A claim without enough runs has no verdict but the number of runs that are missing.
// Production code does not use the package.
package experiment
