// Claims: on the trees of real machines, in their shape, every zone is found
// once, named for what it is, and no watt is counted twice; a machine without
// zones says which way it has none.
package rapl

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/units"
)

// plant builds testdata/NAME.tree below a new root. A [directory] heads the
// "file = value" lines in it; "link -> target" stands for itself.
func plant(t testing.TB, name string) *machine {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".tree"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m := bareMachine(t)
	dir := ""
	for in := bufio.NewScanner(f); in.Scan(); {
		line := in.Text()
		if inner, ok := strings.CutPrefix(line, "["); ok {
			dir = strings.TrimSuffix(inner, "]")
			m.mkdir(dir)
		} else if link, target, ok := strings.Cut(line, " -> "); ok {
			m.mkdir(filepath.Dir(link))
			if err := os.Symlink(target, filepath.Join(m.dir, link)); err != nil {
				t.Fatal(err)
			}
		} else if file, value, ok := strings.Cut(line, " = "); ok {
			m.write(dir+"/"+file, value+"\n")
		}
	}
	return m
}

func labels(zones []*Zone) string {
	var all []string
	for _, z := range zones {
		all = append(all, z.Label)
	}
	return strings.Join(all, " ")
}

func TestTreesOfRealMachines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		zones   string // all, in order
		counted string // may be added up
		remarks string // codes
		skipped int    // zones left out
	}{
		{name: "xeon-1s", zones: "package-0 dram-0", counted: "package-0 dram-0"},
		// Lesson 3: intel-rapl:N is not socket N.
		{name: "xeon-2s", zones: "package-0 dram-0 package-1 dram-1", counted: "package-0 package-1 dram-0 dram-1"},
		{
			name: "spr-2s-psys", zones: "package-0 dram-0 package-1 dram-1 psys psys-1",
			counted: "package-0 package-1 dram-0 dram-1", remarks: "psys",
		},
		{
			name: "spr-2s-psys-same-name", zones: "package-0 psys@intel-rapl:0 psys@intel-rapl:2",
			counted: "package-0", remarks: "psys",
		},
		{
			name:    "clx-ap-4die",
			zones:   "package-0-die-0 dram-0-die-0 package-0-die-1 dram-0-die-1 package-1-die-0 dram-1-die-0 package-1-die-1 dram-1-die-1",
			counted: "package-0-die-0 package-0-die-1 package-1-die-0 package-1-die-1 dram-0-die-0 dram-0-die-1 dram-1-die-0 dram-1-die-1",
		},
		{
			name: "client-psys-mmio", zones: "package-0 core-0 uncore-0 psys package-0-mmio",
			counted: "package-0", remarks: "psys twins",
		},
		// Two drivers register each package; the second one has the limits of package-1.
		{
			name: "spr-2s-two-drivers", zones: "package-0 dram-0 package-0@intel-rapl:2 dram-0@intel-rapl:2:0 package-1@intel-rapl:1 package-1",
			counted: "package-0 package-1 dram-0", remarks: "twins",
		},
		// Lesson 21: AMD without constraints is normal, not an error.
		{
			name: "epyc-2s", zones: "package-0 core-0 package-1 core-1", counted: "package-0 package-1",
			remarks: "energy-only",
		},
		{name: "odd-links-absolute", zones: "package-0 dram-0", counted: "package-0 dram-0", remarks: "skipped", skipped: 3},
		{name: "odd-links-nested", zones: "package-0 dram-0", counted: "package-0 dram-0"},
		// Lesson 4: resolve links before removing doubles.
		{name: "odd-links-twice", zones: "package-0 dram-0", counted: "package-0 dram-0"},
		{name: "odd-flat", zones: "package-0 dram-0", counted: "package-0 dram-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tree := plant(t, c.name).open()
			if got := labels(tree.Zones()); got != c.zones {
				t.Errorf("zones\n got %s\nwant %s", got, c.zones)
			}
			if got := labels(tree.Counted()); got != c.counted {
				t.Errorf("counted\n got %s\nwant %s", got, c.counted)
			}
			var codes []string
			for _, r := range tree.Remarks() {
				codes = append(codes, r.Code)
			}
			if got := strings.Join(codes, " "); got != c.remarks {
				t.Errorf("remarks %q, want %q", got, c.remarks)
			}
			if skipped := tree.Skipped(); (skipped != nil) != (c.skipped > 0) {
				t.Errorf("skipped: %v", skipped)
			} else if skipped != nil && strings.Count(skipped.Error(), "\n")+1 != c.skipped {
				t.Errorf("skipped %v, want %d of them", skipped, c.skipped)
			}
		})
	}
}

// Lesson 8: kernels without powercap, and virtual machines, show nothing in three ways.
func TestMachinesWithoutZones(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"vm-empty": ErrNoZone, "vm-control-only": ErrNoZone, "vm-bare": ErrNoTree} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := Open(plant(t, name).root); !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	tree := plant(t, "clx-ap-4die").open()
	z := tree.Zones()[7] // memory of the last die
	socket, okSocket := z.Socket()
	die, okDie := z.Die()
	if socket != 1 || die != 1 || !okSocket || !okDie {
		t.Errorf("%s is on socket %d (%v), die %d (%v)", z.Label, socket, okSocket, die, okDie)
	}
	single := plant(t, "spr-2s-psys").open()
	if _, ok := single.OfKind(PSys)[0].Socket(); ok {
		t.Error("a platform zone claims a socket")
	}
	if _, ok := single.OfKind(Package)[1].Die(); ok {
		t.Error("a package of one zone claims a die")
	}
}

// Lesson 4: only packages take a cap; the names of constraints say which limit it
// is, and a peak power has no window.
func TestOnlyPackagesAreLimited(t *testing.T) {
	t.Parallel()
	tree := plant(t, "epyc-2s").open()
	if _, err := tree.OfKind(Package)[0].Limiter(); !errors.Is(err, ErrNoConstraint) {
		t.Errorf("limiter of an energy-only package: %v", err)
	}
	client := plant(t, "client-psys-mmio").open()
	c, err := client.OfKind(Package)[0].Constraint("peak_power")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Window(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("window of a peak power: %v", err)
	}
}

// The limit that binds a package of two drivers is the lower of theirs, and the one that has
// limits counts.
func TestPackageOfTwoDrivers(t *testing.T) {
	t.Parallel()
	m := plant(t, "spr-2s-two-drivers")
	tree := m.open()
	first := tree.OfKind(Package)[0]
	b, err := tree.Binding(first, LongTerm)
	if err != nil || b.Limit != 240*units.Watt || b.Zone.Label != "package-0@intel-rapl:2" || !b.Zone.Repeats() || first.Repeats() {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := tree.OfKind(Package)[1].Limiter(); err != nil {
		t.Errorf("the driver without limits counts: %v", err)
	}
}
