// Claims: the highest limit of a package is never below what it held when powerd found it, whatever
// design power its firmware states; a package that two drivers register counts once.
package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// packageRoot is a machine with one package registered by each of drivers.
func packageRoot(t *testing.T, stated, limit units.Power, drivers int) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for d := range drivers {
		zone := filepath.Join(dir, fmt.Sprintf("sys/class/powercap/intel-rapl:%d", d))
		for name, text := range map[string]string{
			"name": "package-0", "energy_uj": "1000", "max_energy_range_uj": "262143328850", "enabled": "1", "constraint_0_name": "long_term",
			"constraint_0_time_window_us": "999424", "constraint_0_max_power_uw": fmt.Sprint(int64(stated)), "constraint_0_power_limit_uw": fmt.Sprint(int64(limit)),
		} {
			if err := os.MkdirAll(zone, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(zone, name), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func openAt(t *testing.T, root *os.Root) *Machine {
	t.Helper()
	cfg := config.Defaults()
	files, err := sysfs.NewFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	m, err := Open(files, &cfg, rapl.Open, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func TestHighestLimitIsNotBelowTheFoundOne(t *testing.T) {
	t.Parallel()
	const label = "package-0 long_term limit"
	journal := func(w units.Power) *originals.Journal {
		return &originals.Journal{Controls: []originals.Saved{
			{Label: "package-0 short_term limit", Kind: originals.Power, Original: int64(900 * units.Watt)},
			{Label: label, Kind: originals.Power, Original: int64(w)},
		}}
	}
	for _, c := range []struct {
		name                string
		stated, limit, want units.Power
		journal             *originals.Journal
	}{
		{"as stated", 200 * units.Watt, 150 * units.Watt, 200 * units.Watt, nil},
		{"held above what is stated", 65 * units.Watt, 200 * units.Watt, 200 * units.Watt, nil},
		{"a cap of an earlier powerd stands", 65 * units.Watt, 90 * units.Watt, 200 * units.Watt, journal(200 * units.Watt)},
		{"an earlier powerd found less", 200 * units.Watt, 90 * units.Watt, 200 * units.Watt, journal(100 * units.Watt)},
		{"nothing stated", 0, 200 * units.Watt, 0, journal(200 * units.Watt)},
		{"what no register holds", 65 * units.Watt, 30_000 * units.Watt, 65 * units.Watt, journal(30_000 * units.Watt)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := openAt(t, packageRoot(t, c.stated, c.limit, 1))
			m.Found(c.journal)
			if got := m.PackageMax(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestPackageOfTwoDriversCountsOnce(t *testing.T) {
	t.Parallel()
	m := openAt(t, packageRoot(t, 150*units.Watt, 150*units.Watt, 2))
	if len(m.Packages) != 1 || m.PackageMax() != 150*units.Watt {
		t.Errorf("%d packages of %v", len(m.Packages), m.PackageMax())
	}
	rows := m.ZoneRows(Usage{})
	if len(rows) != 1 || rows[0].GetZone() != "package-0" {
		t.Errorf("%v", rows)
	}
	if n := len(m.Controls()); n != 3 {
		t.Errorf("%d controls, want limit, window and switch of one zone", n)
	}
}

// An image that has not booted has a word in place of a machine id: machines made from it would all
// be the same one.
func TestMachineWithoutAnID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{machineIDFile: "4f0c9e7f0c1d4b8ea77d0c2b5f3a9e01", BootIDFile: "b"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if id, err := ReadIdentity(root); err != nil || id.Boot != "b" {
		t.Fatal(id, err)
	}
	if err := os.WriteFile(filepath.Join(dir, machineIDFile), []byte("uninitialized\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadIdentity(root); !errors.Is(err, errNoIdentity) || !strings.Contains(err.Error(), "has not booted yet") || !strings.Contains(config.HintOf(err), "systemd-machine-id-setup") {
		t.Errorf("%v (%s)", err, config.HintOf(err))
	}
}
