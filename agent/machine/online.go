package machine

import (
	"fmt"
	"io/fs"

	"headroom/rapl"
	"headroom/rapl/sysfs"
)

// FindLost are the packages whose zones are gone although they run: their limits
// may stand at anything. One that was unplugged is none of them.
func (m *Machine) FindLost() []string {
	var lost []string
	var online map[int]bool
	for _, s := range m.Limited() {
		if !s.Zone.Gone() {
			continue
		}
		if online == nil {
			online = onlinePackages(m.Files)
		}
		if n, ok := s.Zone.Socket(); !ok || online[n] || len(online) == 0 {
			lost = append(lost, s.Zone.Label)
		}
	}
	return lost
}

// cpuDir has a folder for each CPU; one that is offline shows no topology.
const cpuDir = "sys/devices/system/cpu"

// onlinePackages are the sockets that have a CPU online.
func onlinePackages(files *sysfs.Files) map[int]bool {
	online := map[int]bool{}
	entries, err := fs.ReadDir(files.Root().FS(), cpuDir)
	if err != nil {
		return online
	}
	for _, e := range entries {
		if n, err := files.ReadInt(cpuDir + "/" + e.Name() + "/topology/physical_package_id"); err == nil {
			online[int(n)] = true
		}
	}
	return online
}

// HeldLower names the packages that are held to less than was written, by the limits that
// the same package shows through another interface: the lower of the two wins.
//
//headroom:control
func (m *Machine) HeldLower() []string {
	var held []string
	for _, s := range m.Limited() {
		if len(m.Tree.Twins(s.Zone)) == 0 || s.Written.Long == 0 {
			continue
		}
		b, err := m.Tree.Binding(s.Zone, rapl.LongTerm)
		if err == nil && b.Zone != s.Zone && b.Limit < s.Written.Long-rapl.Rounding {
			held = append(held, fmt.Sprintf("%s to %v by %s (wrote %v)", s.Zone.Label, b.Limit, b.Zone.Label, s.Written.Long))
		}
	}
	return held
}
