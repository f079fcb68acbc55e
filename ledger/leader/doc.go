// Package leader is one leadership of the coordinators, as a state machine without
// clock or I/O: it hears heartbeats, decides what to commit, and says who is granted what
// once that has committed.
//
// The one idea, etcd's: inputs are methods, each with the committed state and the time;
// outputs are a list for the caller to carry out in order. The coordinator and the
// simulation drive the same Leader; streams, disks, timers and the consensus are theirs.
//
// Guarantees (design promises P3 and P5): one entry is in flight at a time; a heartbeat is
// answered only after an entry proposed after its arrival has committed; nobody is granted
// anything while a brake is known that the log has not heard of; a cut goes out with the
// entry that commits it; a raise by the clock waits for the clocks of the others; an
// entry whose outcome is unknown answers nobody.
//
// It keeps nothing that must survive it: a new leadership starts with an empty table.
package leader
