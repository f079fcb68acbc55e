package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// emulated writes the files of a node: its tree with these limits, and held.json.
func emulated(t *testing.T, long, short units.Power, enabled, held string) nodeFiles {
	t.Helper()
	n := nodeFiles{name: "n01", dir: t.TempDir(), rated: 241 * w}
	class := filepath.Join(n.dir, "root", "sys/class/powercap")
	zone := filepath.Join(class, "intel-rapl:0")
	for path, text := range map[string]string{
		zone + "/name": "package-0", zone + "/enabled": enabled,
		zone + "/constraint_0_name": "long_term", zone + "/constraint_0_power_limit_uw": fmt.Sprint(int64(long)),
		zone + "/constraint_1_name": "short_term", zone + "/constraint_1_power_limit_uw": fmt.Sprint(int64(short)),
		zone + ":0/name":           "dram",
		n.dir + "/state/held.json": held,
		n.dir + "/run/plant.json":  fmt.Sprintf(`{"at_us":%d,"wall_1s_w":101.5,"energy_j":7,"throttled_by":"cgroup"}`, time.Now().UnixMicro()),
		n.dir + "/run/powerd.pid":  "4711",
		class + "/else":            "no zone",
	} {
		testkit.WriteFile(t, path, text+"\n")
	}
	return n
}

const heldJSON = `{"at_us":1,"node":"n01","state":"held","cap_w":144.5,"stamp":{"epoch":{"incarnation":1,"term":3},"seq":9},
"limits":[{"zone":"package-0","constraint":"long_term","written_uw":100000000},{"zone":"package-0","constraint":"short_term","written_uw":101000000}],
"other_w":22,"supply_efficiency":0.5}`

// A node holds its cap; and whatever its tree holds beyond what powerd reports it
// wrote, at the wall. A limit below that is no credit.
func TestHeldCountsWhatTheTreeHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		long, short units.Power
		enabled     string
		held        string
		want        units.Power
	}{
		{"as written", 100 * w, 101 * w, "1", heldJSON, 144500 * units.Milliwatt},
		{"below", 80 * w, 81 * w, "1", heldJSON, 144500 * units.Milliwatt},
		{"long above", 110 * w, 101 * w, "1", heldJSON, 164500 * units.Milliwatt},
		{"short above", 100 * w, 106 * w, "1", heldJSON, 154500 * units.Milliwatt},
		{"limits off", 100 * w, 101 * w, "0", heldJSON, 241 * w},
		{"released", 185 * w, 222 * w, "1", `{"state":"released","cap_w":241,"limits":[]}`, 241 * w},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, _, err := emulated(t, c.long, c.short, c.enabled, c.held).held()
			if err != nil || got != c.want {
				t.Errorf("%v, %v; want %v", got, err, c.want)
			}
		})
	}
}

// What cannot be read is not known; it is never a number.
func TestHeldIsUnknownWithoutFiles(t *testing.T) {
	t.Parallel()
	n := emulated(t, w, w, "1", heldJSON)
	testkit.Check(t, os.Remove(n.stateFile()))
	if _, _, err := n.held(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without held.json: %v", err)
	}
	n = emulated(t, w, w, "1", "{")
	if _, _, err := n.held(); err == nil {
		t.Error("a broken held.json was read")
	}
	n = emulated(t, w, w, "1", heldJSON)
	testkit.Check(t, os.RemoveAll(filepath.Join(n.dir, "root")))
	if _, _, err := n.held(); !errors.Is(err, errMoving) {
		t.Errorf("without a tree: %v", err)
	}
}

// The plant's view counts while it is fresh.
func TestPlantIsUnknownWhenOld(t *testing.T) {
	t.Parallel()
	n := emulated(t, w, w, "1", heldJSON)
	if p, err := n.plant(time.Now()); err != nil || p.Wall1sW != 101.5 || p.EnergyJ != 7 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := n.plant(time.Now().Add(2 * time.Second)); err == nil {
		t.Error("an old view was believed")
	}
	if pid, started := n.powerd(); pid != 4711 || time.Since(started) > time.Minute {
		t.Errorf("powerd %d, started %v", pid, started)
	}
}
