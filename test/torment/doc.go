// Package torment tests the outside judge with the built programs: it finds nothing
// wrong with them, and it finds what is wrong with a powerd that was
// sabotaged in one line. Both run side by side, each in namespaces of its own, within a minute.
//
// It needs root or user namespaces, nftables and iproute2; what is missing is reported
// as not run.
package torment
