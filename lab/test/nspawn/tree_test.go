package nspawn

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// The package of the emulated tree, as its vendor set it.
const (
	zone          = "sys/devices/virtual/powercap/intel-rapl/intel-rapl:0/"
	longOriginal  = 180_000_000 // microwatts
	shortOriginal = 216_000_000
	drawWatts     = 40
)

// makeTree makes a powercap tree of one package, with the kernel's owners and modes,
// and lets its energy counter run until the test ends.
func (m *machine) makeTree(t *testing.T) {
	t.Helper()
	for name, text := range map[string]string{
		zone + "name": "package-0", zone + "enabled": "1", zone + "max_energy_range_uj": "262143328850",
		zone + "constraint_0_name": "long_term", zone + "constraint_0_power_limit_uw": strconv.Itoa(longOriginal),
		zone + "constraint_0_time_window_us": "999424", zone + "constraint_0_max_power_uw": strconv.Itoa(longOriginal),
		zone + "constraint_1_name": "short_term", zone + "constraint_1_power_limit_uw": strconv.Itoa(shortOriginal),
		zone + "constraint_1_time_window_us": "2440", zone + "constraint_1_max_power_uw": strconv.Itoa(shortOriginal),
		"sys/devices/virtual/powercap/intel-rapl/enabled": "1",
		"sys/devices/system/cpu/cpufreq/boost":            "1",
		"sys/devices/system/cpu/online":                   "0-1",
		// How the machine distinguishes this tree from the kernel's.
		"sys/class/.emulated": "", "sys/devices/.emulated": "",
	} {
		m.write(t, name, text+"\n", 0o644)
	}
	m.link(t, "../../devices/virtual/powercap/intel-rapl", "sys/class/powercap/intel-rapl")
	m.link(t, "../../devices/virtual/powercap/intel-rapl/intel-rapl:0", "sys/class/powercap/intel-rapl:0")
	m.run(t)
}

func (m *machine) link(t *testing.T, to, at string) {
	t.Helper()
	testkit.Check(t, os.MkdirAll(m.path("sys/class/powercap"), 0o755))
	testkit.Check(t, os.Symlink(to, m.path(at)))
}

// run moves the energy counter, in place and always with ten digits, so that no
// reader ever sees half of it.
func (m *machine) run(t *testing.T) {
	t.Helper()
	const first = 1_000_000_000
	m.write(t, zone+"energy_uj", strconv.Itoa(first)+"\n", 0o400)
	f := testkit.Need(os.OpenFile(m.path(zone+"energy_uj"), os.O_WRONLY, 0))(t)
	stop, start := make(chan struct{}), time.Now()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(glance / 2):
			}
			_, _ = f.WriteAt([]byte(strconv.FormatInt(first+drawWatts*time.Since(start).Microseconds(), 10)), 0)
		}
	})
	t.Cleanup(func() {
		close(stop)
		running.Wait()
		_ = f.Close()
	})
}

// limits are the package's two limits now, in microwatts; 0 while one is being written.
func (m *machine) limits() (long, short int) {
	return m.number(zone + "constraint_0_power_limit_uw"), m.number(zone + "constraint_1_power_limit_uw")
}

func (m *machine) number(name string) int {
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return n
}
