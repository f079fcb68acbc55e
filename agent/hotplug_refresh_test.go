// Claims: what holds the cap is looked for each half minute; what does not, and can
// all be read, every five minutes only, since a look opens every file anew.
package agent

import (
	"os"
	"path/filepath"
	"testing"

	"headroom/agent/heat"
)

// added copies a part of the machine under another name.
func (l *lab) added(t *testing.T, from, to string) {
	t.Helper()
	root := filepath.Join(l.dir, "root")
	original, err := filepath.EvalSymlinks(filepath.Join(root, from))
	if err == nil {
		err = os.CopyFS(filepath.Join(root, to), os.DirFS(original))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSensorsAreLookedForWhenNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kept  uint64
		spoil func(*heat.Heat)
		found bool
	}{
		"all can be read":         {refreshEvery, func(*heat.Heat) {}, false},
		"temperature unknown":     {refreshEvery, func(h *heat.Heat) { h.Temp.Known = false }, true},
		"counters cannot be read": {refreshEvery, func(h *heat.Heat) { h.Counted = false }, true},
		"five minutes later":      {refreshRest, func(*heat.Heat) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			n := loopless(t, l.config("127.0.0.1:1"))
			n.heat.Look(instant().Boot)
			if !n.heat.Temp.Known || !n.heat.Counted {
				t.Fatalf("the emulated machine's temperature is not known: %+v", n.heat)
			}
			before := len(n.heat.Sensors.Thermometers())
			l.added(t, "sys/class/hwmon/hwmon0", "sys/class/hwmon/hwmon9")
			c.spoil(n.heat)
			n.seconds = c.kept
			n.hotplug.look(n.seconds)
			if got := len(n.heat.Sensors.Thermometers()) > before; got != c.found {
				t.Errorf("found %v, want %v", got, c.found)
			}
		})
	}
}

func TestPoliciesAreLookedForWhenUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kept  uint64
		used  bool
		found bool
	}{
		"at rest":            {refreshEvery, false, false},
		"bound":              {refreshEvery, true, true},
		"five minutes later": {refreshRest, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			n := loopless(t, l.config("127.0.0.1:1"))
			before := len(n.machine.Freq.Set.Policies())
			l.added(t, "sys/devices/system/cpu/cpufreq/policy0", "sys/devices/system/cpu/cpufreq/policy99")
			n.machine.Freq.Used, n.seconds = c.used, c.kept
			n.hotplug.look(n.seconds)
			if got := len(n.machine.Freq.Set.Policies()) > before; got != c.found {
				t.Errorf("found %v, want %v", got, c.found)
			}
		})
	}
}
