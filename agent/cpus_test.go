// Claims: powerd plans for 2,048 CPUs, each with a policy of its own, on 8 sockets: it keeps
// one descriptor for each policy that holds the cap and none for others; it says before it
// writes anything that it has too few of them; originals go back when the process has none left; no
// text and no message grows with the number of policies beyond its bound; the journal is
// written once before the first write.
package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/units"
)

// Size of the machine that powerd plans for.
const (
	plannedCPUs    = 2048
	plannedSockets = 8
)

// wideMachine writes the files of a machine whose every CPU has a policy of its own. Its
// packages have counters but no limits, and a counter of heat a core.
func wideMachine(tb testing.TB, dir string, cpus, sockets int) {
	tb.Helper()
	files := map[string]string{
		"etc/machine-id": "4f0c9e7f0c1d4b8ea77d0c2b5f3a9e01", "proc/sys/kernel/random/boot_id": "0b1c8a52-7d8d-4c7e-9a4e-3d1f6a0e55c1",
		"sys/devices/system/cpu/online": fmt.Sprintf("0-%d", cpus-1), "sys/devices/system/cpu/amd_pstate/status": "active",
		"sys/devices/system/cpu/cpufreq/boost": "1",
	}
	for s := range sockets {
		zone := fmt.Sprintf("sys/class/powercap/intel-rapl:%d/", s)
		files[zone+"name"], files[zone+"energy_uj"], files[zone+"max_energy_range_uj"] = fmt.Sprintf("package-%d", s), fmt.Sprint(5_000_000_000+s), "65532610987"
	}
	for c := range cpus {
		policy, cpu := fmt.Sprintf("sys/devices/system/cpu/cpufreq/policy%d/", c), fmt.Sprintf("sys/devices/system/cpu/cpu%d/", c)
		for name, text := range map[string]string{
			"scaling_driver": "amd-pstate-epp", "cpuinfo_min_freq": "600000", "cpuinfo_max_freq": "3700000", "scaling_min_freq": "600000",
			"scaling_max_freq": "3700000", "scaling_cur_freq": "2500000", "scaling_governor": "powersave",
			"scaling_available_governors": "performance powersave", "affected_cpus": fmt.Sprint(c),
			"energy_performance_preference": "performance",
		} {
			files[policy+name] = text
		}
		files[cpu+"topology/physical_package_id"], files[cpu+"topology/core_id"] = fmt.Sprint(c*sockets/cpus), fmt.Sprint(c)
		files[cpu+"thermal_throttle/core_throttle_count"], files[cpu+"thermal_throttle/package_throttle_count"] = "0", "0"
	}
	made := map[string]bool{}
	for name, text := range files {
		at := filepath.Join(dir, name)
		if folder := filepath.Dir(at); !made[folder] {
			made[folder] = true
			if err := os.MkdirAll(folder, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		if err := os.WriteFile(at, []byte(text+"\n"), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// wideConfig is that of a node on a wide machine below dir.
func wideConfig(dir string) config.Config {
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce = "n01", "rack/r1", true
	cfg.Root, cfg.StateDir = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	cfg.Power = config.Power{
		Rated: 1600 * units.Watt, Floor: 500 * units.Watt, Max: 1500 * units.Watt, FailSafe: 700 * units.Watt, SupplyEfficiency: 1,
	}
	cfg.Frequency = config.Frequency{Preference: "balance_power", Turbo: config.TurboSprint}
	return cfg
}

// BenchmarkStartOfAWideMachine is the time to the first safe cap.
func BenchmarkStartOfAWideMachine(b *testing.B) {
	dir := b.TempDir()
	wideMachine(b, filepath.Join(dir, "root"), plannedCPUs, plannedSockets)
	cfg := wideConfig(dir)
	b.ReportAllocs()
	for b.Loop() {
		n, err := start(cfg, slog.New(slog.DiscardHandler), statedir.OS{Dir: cfg.StateDir})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := errors.Join(n.close(), os.RemoveAll(cfg.StateDir)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
