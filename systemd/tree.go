package systemd

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"
)

// fileMax bounds what is read of a file of the cgroup tree.
const fileMax = 64 << 10

// Where the cgroup tree of systemd may be: cgroup v2 alone, beside v1, and v1 alone.
func treeRoots() []string {
	return []string{"sys/fs/cgroup", "sys/fs/cgroup/unified", "sys/fs/cgroup/systemd"}
}

// Where the CPU controller of cgroup v1 may be.
func cpuRoots() []string { return []string{"sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu"} }

// read is a small file below the root, and whether it could be read.
func (m *Manager) read(name string) (string, bool) {
	if m.root == nil {
		return "", false
	}
	f, err := m.root.Open(name)
	if err != nil {
		return "", false
	}
	data, err := io.ReadAll(io.LimitReader(f, fileMax))
	return string(data), errors.Join(err, f.Close()) == nil
}

// ownGroup is the cgroup of this process in systemd's hierarchy, empty when unknown:
// the last field of "0::/system.slice/powerd.service" (v2) or of
// "1:name=systemd:/system.slice/powerd.service" (v1).
func (m *Manager) ownGroup() string {
	text, ok := m.read("proc/self/cgroup")
	if !ok {
		return ""
	}
	group := ""
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "name=systemd", parts[1] == "" && group == "":
			group = parts[2]
		}
	}
	return group
}

// readGroup fills in the kernel's values of a cgroup.
func (m *Manager) readGroup(group string, st *SliceState) {
	v2 := path.Join("sys/fs/cgroup", group)
	if text, ok := m.read(path.Join(v2, "cpu.max")); ok {
		held, err := parseMax(text)
		st.Held, st.HeldKnown = held, err == nil
		stat, _ := m.read(path.Join(v2, "cpu.stat"))
		used, err := parseUsed(stat)
		st.Used, st.UsedKnown = used, err == nil
		return
	}
	for _, root := range cpuRoots() {
		quota, ok := m.read(path.Join(root, group, "cpu.cfs_quota_us"))
		period, okPeriod := m.read(path.Join(root, group, "cpu.cfs_period_us"))
		if !ok || !okPeriod {
			continue
		}
		held, err := parseQuota(strings.TrimSpace(quota), strings.TrimSpace(period))
		st.Held, st.HeldKnown = held, err == nil
		usage, _ := m.read(path.Join(root, group, "cpuacct.usage"))
		used, err := parseTime(usage, time.Nanosecond)
		st.Used, st.UsedKnown = used, err == nil
		return
	}
}

// unitsInTree are the services with processes that match one of the names, found in
// the cgroup tree alone.
func (m *Manager) unitsInTree(names []string) ([]Unit, error) {
	if m.root == nil {
		return nil, ErrNoSystemd
	}
	for _, root := range treeRoots() {
		dir := path.Join(root, "system.slice")
		entries, err := fs.ReadDir(m.root.FS(), dir)
		if err != nil {
			continue
		}
		var found []Unit
		for _, e := range entries {
			if e.IsDir() && matches(e.Name(), names) && m.populated(path.Join(dir, e.Name())) {
				found = append(found, Unit{Name: e.Name(), Active: "active"})
			}
		}
		return found, nil
	}
	return nil, ErrNoSystemd
}

// populated reports whether a cgroup, or one in it, has processes. One that cannot be
// judged counts: a rival too many is looked at, one too few is not.
func (m *Manager) populated(group string) bool {
	if events, ok := m.read(path.Join(group, "cgroup.events")); ok { // v2
		return strings.Contains(events, "populated 1")
	}
	procs, ok := m.read(path.Join(group, "cgroup.procs"))
	return !ok || strings.TrimSpace(procs) != ""
}
