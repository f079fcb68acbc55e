// Package systemd is what powerd and its sisters say to the service manager and ask
// of it: they report their own state (Notify), bound the CPU bandwidth of slices of
// low priority (Slice), and learn which units are active (Manager.ActiveUnits), to
// name other writers of the same controls.
//
// The idea: systemd owns the tree of cgroups, so a bound goes through it and never
// into cpu.max behind its back; but only what reads back is believed, and that is
// read from the kernel's own file wherever there is one.
//
// Guarantees: a notification never waits for the service manager, but for the first
// and the last one, which wait at most a second. Every call to the manager ends
// after CallTimeout. A bound lasts until the next boot at most. A slice that holds
// one of Headroom's own services is refused, each time anew, and so is a bound of
// nothing: a slice always keeps BandwidthMin. An original goes back only while the
// slice still holds what was last written.
//
// A machine without D-Bus, without systemd or with another file system root has
// fewer abilities, not errors at start: each call says in words what is missing.
//
// The package starts no program, and never starts, stops or kills a unit. Nothing runs
// in the background before the first call of a Manager; from then on its connection
// (go-systemd's) has goroutines of its own until Manager.Close.
package systemd
