// Package leader is one leadership of the coordinators, as a state machine without
// clock or I/O: it receives heartbeats, decides what to commit, and returns the leases to
// grant after the commit.
//
// The one idea, from etcd: inputs are methods, each with the committed state and the time;
// outputs are a list that the caller carries out in order. The coordinator and the
// simulation drive the same Leader and provide streams, disks, timers and the consensus.
//
// Guarantees (design promises P3 and P5): one entry is in flight at a time. A heartbeat is
// answered only after an entry proposed after its arrival has committed. No lease is
// granted while a brake is known but not committed. A cut is sent with the entry that
// commits it. A scheduled raise waits for the clocks of the other servers. An entry with an
// unknown outcome answers no heartbeat.
//
// It keeps no state that must survive it: a new leadership starts with an empty table.
package leader
