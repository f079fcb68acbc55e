// Package faults tests the outside checker of lab/faults with the built programs. It must
// report no violation for the programs as they are, and a violation for a powerd that is
// sabotaged in one line. Both runs take place side by side, each in its own namespaces,
// within a minute.
//
// It needs root or user namespaces, nftables and iproute2; a missing one is reported as
// not run.
package faults
