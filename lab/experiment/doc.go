// Package experiment measures Headroom on real programs, in many short runs that may be interrupted:
// `powerlab campaign`.
//
// The one idea: a Spec lists what varies, what is measured and what is claimed. A campaign appends each
// finished run to a file of results at once, and what a report judges is that file alone.
//
// Guarantees: no counted run is repeated. A claim without enough runs has no verdict but the number of
// runs that are missing. Production code does not use the package.
package experiment
