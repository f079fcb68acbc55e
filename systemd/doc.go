// Package systemd talks to the service manager: a service reports its own state (Notify),
// limits the CPU bandwidth of low-priority slices (Slice), and lists active units
// (Manager.ActiveUnits) to find other writers of the same controls.
//
// The one idea: systemd owns the tree of cgroups, so a limit is set through it and never by
// writing cpu.max directly. Only the value that reads back counts, from the kernel's own
// file if there is one.
//
// Guarantees: a notification never waits for the service manager, except for the first and
// the last one, which wait at most a second. Every call to the manager ends after
// CallTimeout. A limit lasts until the next boot at most. A slice that contains a service of
// Headroom is refused, and so is a limit of 0: a slice always keeps BandwidthMin. An original
// value is restored only while the slice still holds the last written one.
//
// On a machine without D-Bus, without systemd or with another root, start-up does not fail:
// each call returns an error that names what is missing.
//
// The package starts no program, and never starts, stops or kills a unit. Nothing runs in
// the background before the first call of a Manager; from then on its connection (of
// go-systemd) has goroutines until Manager.Close.
package systemd
