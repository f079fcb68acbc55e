// Claims: a site without its programs is refused; its configuration names
// every coordinator to every other; free ports differ.
package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestMissingProgramIsRefused(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	testkit.Check(t, os.Remove(filepath.Join(bin, "powerd")))
	if _, err := NewSite(Config{Dir: t.TempDir(), Bin: bin, Coordinators: 1, Nodes: 1}); err == nil || !strings.Contains(err.Error(), "program powerd not found") {
		t.Errorf("%v", err)
	}
}

func TestCoordinatorsKnowEachOther(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	s, err := NewSite(Config{Dir: t.TempDir(), Bin: bin, Coordinators: 3, Nodes: 4, Racks: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	addrs := s.Addresses()
	if n := len(slices.Compact(slices.Sorted(slices.Values(addrs)))); n != 3 {
		t.Fatalf("addresses %v", addrs)
	}
	for i, want := range []string{"rack/r1", "rack/r1", "rack/r2", "rack/r2"} {
		if got := s.rackOf(i); got != want {
			t.Errorf("node %d is in %s, want %s", i, got, want)
		}
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		text, err := os.ReadFile(s.Path(id + ".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(addrs, "name: rack/r1, parent: site/lab", "name: rack/r2, parent: site/lab") {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not know %s:\n%s", id, want, text)
			}
		}
	}
}

// Ports are free, on loopback and all different.
func TestFreePorts(t *testing.T) {
	t.Parallel()
	ports, err := FreePorts(10)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 10 || !strings.HasPrefix(ports[0], "127.0.0.1:") {
		t.Errorf("%v", ports)
	}
}

// The energy is that of all nodes, and unknown where one node's counter cannot be read.
func TestDrawn(t *testing.T) {
	t.Parallel()
	s := &Site{Servers: &Servers{dir: t.TempDir()}, nodes: []string{"n1", "n2"}}
	for name, text := range map[string]string{"n1": `{"energy_j": 12.5}  `, "n2": `{"energy_j": 30}`} {
		if err := os.MkdirAll(filepath.Join(s.NodeDir(), name, "run"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.NodeDir(), name, "run", "plant.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := s.Drawn(); err != nil || e.Joules() != 42.5 {
		t.Errorf("%v, %v", e, err)
	}
	if err := os.WriteFile(filepath.Join(s.NodeDir(), "n2", "run", "plant.json"), []byte(`{"energy_j": 3`), 0o644); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Drawn(); err == nil || !strings.Contains(err.Error(), "node n2") {
		t.Errorf("%v, %v of a torn file", e, err)
	}
}

func TestEndedProgramIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := testkit.Need(NewSite(Config{Dir: t.TempDir(), Bin: testkit.Programs(t), Coordinators: 1}))(t)
	t.Cleanup(func() { testkit.Check(t, s.Close()) })
	testkit.Check(t, s.start("kept", "/bin/sleep", "600"))
	testkit.Check(t, s.start("crashed", "/bin/sleep", "600"))
	first := s.programs[1]
	first.Kill()
	if err := s.Running(); !errors.Is(err, ErrEnded) {
		t.Errorf("after the crash: %v", err)
	}
	names := testkit.Need(s.Revive())(t)
	if err := s.Running(); err != nil || !slices.Equal(names, []string{"crashed"}) || s.Kill("crashed") == first.Pid() {
		t.Errorf("started again: %v, %v", names, err)
	}
}
