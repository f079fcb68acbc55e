package emulator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/sysfs"

	"headroom/internal/testkit"
	"headroom/lab/emulator"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

const (
	zone  = "sys/class/powercap/intel-rapl:0/"
	limit = zone + "constraint_0_power_limit_uw"
	step  = 10 * time.Millisecond
)

func newNode(t testing.TB) *emulator.Node {
	t.Helper()
	n := testkit.Need(emulator.NewNode(t.TempDir(), emulator.DefaultSpec()))(t)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func run(t testing.TB, n *emulator.Node, d time.Duration, util float64) {
	t.Helper()
	for ; d > 0; d -= step {
		testkit.Check(t, n.Step(step, util))
	}
}

// write puts a value as powerd does: one write at offset 0, without truncation.
func write(t testing.TB, n *emulator.Node, name, value string) {
	t.Helper()
	f := testkit.Need(os.OpenFile(filepath.Join(n.RootDir(), name), os.O_WRONLY, 0))(t)
	if _, err := f.WriteAt([]byte(value+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, f.Close())
}

// read is the file's first line.
func read(t testing.TB, n *emulator.Node, name string) string {
	t.Helper()
	text := testkit.Need(os.ReadFile(filepath.Join(n.RootDir(), name)))(t)
	line, _, found := strings.Cut(string(text), "\n")
	if !found {
		t.Errorf("%s does not end its line: %q", name, text)
	}
	return line
}

// The tree has the shape, the links, the modes and the values of a real one.
func TestTreeShape(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	testkit.Golden(t, "tree.golden", testkit.Tree(t, n.RootDir(), func(string) bool { return false }, func(line string) string {
		return secret.ReplaceAllString(line, "<id>")
	}))
}

var secret = regexp.MustCompile(`^[0-9a-f]{32}$|^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// Programs that read real machines read this one.
func TestTreeIsReadByProcfs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	run(t, n, 2*time.Second, 0.5)
	proc := testkit.Need(procfs.NewFS(filepath.Join(n.RootDir(), "proc")))(t)
	stat := testkit.Need(proc.Stat())(t)
	cpu := stat.CPU[3]
	if len(stat.CPU) != 4 || cpu.User < 0.9 || cpu.User > 1.1 || cpu.User+cpu.Idle < 1.9 || cpu.User+cpu.Idle > 2.1 {
		t.Errorf("cpu3 after 2 s at half load: %+v", cpu)
	}
	sys := testkit.Need(sysfs.NewFS(filepath.Join(n.RootDir(), "sys")))(t)
	zones := testkit.Need(sysfs.GetRaplZones(sys))(t)
	var names []string
	for _, z := range zones {
		names = append(names, z.Name)
		if _, err := z.GetEnergyMicrojoules(); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"package", "core", "dram"}, names); diff != "" {
		t.Errorf("zones (-want +got):\n%s", diff)
	}
	policies, err := sys.SystemCpufreq()
	if err != nil || len(policies) != 4 {
		t.Errorf("%d cpufreq policies, %v", len(policies), err)
	}
}

// A written limit is taken over, rounded as the kernel does, shown so, and acts.
func TestWrittenLimitActs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	run(t, n, time.Second, 1)
	uncapped := n.Plant().Package()
	write(t, n, zone+"constraint_0_time_window_us", "100000")
	write(t, n, limit, "90060000")
	run(t, n, time.Second, 1)
	if got := read(t, n, limit); got != "90000000" {
		t.Errorf("90060000 uW reads back as %q", got)
	}
	if got := read(t, n, zone+"constraint_0_time_window_us"); got != "93696" {
		t.Errorf("100000 us reads back as %q", got)
	}
	if p := n.Plant().Package().Watts(); p < 89 || p > 90.5 || uncapped < 180*units.Watt {
		t.Errorf("package draws %.2f W under 90 W, %v before", p, uncapped)
	}
	if got := read(t, n, "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq"); got == "3400000" {
		t.Error("scaling_cur_freq does not show the lower frequency")
	}
	write(t, n, zone+"enabled", "0")
	run(t, n, time.Second, 1)
	if p := n.Plant().Package(); p < 180*units.Watt {
		t.Errorf("package draws %v with its limits off", p)
	}
}

// What the kernel would refuse is undone, what it would round is rounded.
func TestStoresAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	const policy = "sys/devices/system/cpu/cpufreq/policy1/"
	n := newNode(t)
	for _, c := range []struct{ name, file, written, shown string }{
		{"letters", limit, "abc", "185000000"},
		{"negative", limit, "-1", "185000000"},
		{"exponent", limit, "1e6", "185000000"},
		{"too large for a number", limit, "99999999999999999999", "185000000"},
		{"too large for 15 bits", limit, "99999999999", "1695875000"},
		{"zero", limit, "0", "0"},
		{"plus sign", limit, "+50000000", "50000000"},
		{"window", zone + "constraint_0_time_window_us", "500000", "499712"},
		{"window of nothing", zone + "constraint_1_time_window_us", "0", "976"},
		{"window beyond time", zone + "constraint_0_time_window_us", "9000000000000000000", "3667902070784"},
		{"yes", zone + "enabled", "n", "0"},
		{"off and on", zone + "enabled", "on", "1"},
		{"neither", zone + "enabled", "maybe", "1"},
		{"ceiling between rungs", policy + "scaling_max_freq", "2050000", "2000000"},
		{"ceiling with a tail", policy + "scaling_max_freq", "2000000x", "2000000"},
		{"ceiling too high", policy + "scaling_max_freq", "9000000", "3400000"},
		{"ceiling too low", policy + "scaling_max_freq", "1", "800000"},
		{"ceiling of letters", policy + "scaling_max_freq", "fast", "800000"},
		{"governor", policy + "scaling_governor", "performance", "performance"},
		{"unknown governor", policy + "scaling_governor", "userspace", "performance"},
		{"core limit", zone + "intel-rapl:0:0/constraint_0_power_limit_uw", "5000000", "0"},
		{"core enabled", zone + "intel-rapl:0:0/enabled", "1", "0"},
	} {
		write(t, n, c.file, c.written)
		run(t, n, 200*time.Millisecond, 0)
		if got := read(t, n, c.file); got != c.shown {
			t.Errorf("%s: %q became %q, want %q", c.name, c.written, got, c.shown)
		}
	}
}

// A writer that truncates first, as a shell does, is given the time to write.
func TestEmptyFileIsAWriterAtWork(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	path := filepath.Join(n.RootDir(), limit)
	testkit.Check(t, os.Truncate(path, 0))
	run(t, n, 2*step, 0)
	if text, err := os.ReadFile(path); err != nil || len(text) != 0 {
		t.Errorf("an empty file was filled at once: %q %v", text, err)
	}
	run(t, n, 10*step, 0)
	if got := read(t, n, limit); got != "185000000" {
		t.Errorf("a file left empty shows %q", got)
	}
}

// The powersave governor requests the lowest frequency, the others the ceiling.
func TestGovernors(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for cpu := range 4 {
		write(t, n, fmt.Sprintf("sys/devices/system/cpu/cpufreq/policy%d/scaling_governor", cpu), "powersave")
	}
	run(t, n, 200*time.Millisecond, 1)
	if got := n.Plant().Freq(); got != n.Plant().Spec().FreqMin {
		t.Errorf("powersave runs at %d kHz", got)
	}
}

// A reboot keeps the machine's identity, takes a new boot id, forgets limits.
func TestReboot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids := func() (machine, boot, held string) {
		n := testkit.Need(emulator.NewNode(dir, emulator.DefaultSpec()))(t)
		machine, boot, held = read(t, n, "etc/machine-id"), read(t, n, "proc/sys/kernel/random/boot_id"), read(t, n, limit)
		write(t, n, limit, "60000000")
		run(t, n, 5*step, 1)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		return machine, boot, held
	}
	m1, b1, _ := ids()
	m2, b2, held := ids()
	if m1 != m2 || b1 == b2 || held != "185000000" {
		t.Errorf("machine %s then %s, boot %s then %s, limit after reboot %s", m1, m2, b1, b2, held)
	}
	other := newNode(t)
	if read(t, other, "etc/machine-id") == m1 {
		t.Error("two nodes have one machine id")
	}
}

// run/plant.json is whole at every moment, and its one-second mean is a mean.
func TestPlantView(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	run(t, n, 3*time.Second, 1)
	text := testkit.Need(os.ReadFile(filepath.Join(n.Dir(), "run", "plant.json")))(t)
	var v emulator.View
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	if v != n.View() || v.Tree != "plain files" || v.ThrottledBy != "" || v.AtUs == 0 {
		t.Errorf("plant.json %+v, view %+v", v, n.View())
	}
	before := v.EnergyJ
	run(t, n, time.Second, 0)
	v = n.View()
	if mean := v.EnergyJ - before; mean < v.Wall1sW-1 || mean > v.Wall1sW+1 {
		t.Errorf("mean of the last second is %.2f W, energy says %.2f W", v.Wall1sW, mean)
	}
	if v.WallW >= v.Wall1sW || v.Utilisation != 0 {
		t.Errorf("after a second of idling: %+v", v)
	}
}

// A reader that has opened run/plant.json reads all of one view, also while the next one takes its place.
func TestPlantViewIsWhole(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	read := func(r io.Reader) (v emulator.View) {
		t.Helper()
		testkit.Check(t, json.Unmarshal(testkit.Need(io.ReadAll(r))(t), &v))
		return v
	}
	for range 20 {
		before := n.View()
		file := testkit.Need(os.Open(filepath.Join(n.Dir(), "run", "plant.json")))(t)
		run(t, n, 100*time.Millisecond, 1)
		next := testkit.Need(os.Open(filepath.Join(n.Dir(), "run", "plant.json")))(t)
		if old, now := read(file), read(next); old != before || now != n.View() || now == old {
			t.Errorf("opened %+v, read %+v; then shown %+v, view %+v", before, old, now, n.View())
		}
		testkit.Check(t, errors.Join(file.Close(), next.Close()))
	}
}

// The counters that a reader sees are the plant's, and they only move forward.
func TestCountersArePublished(t *testing.T) {
	t.Parallel()
	spec := emulator.DefaultSpec()
	spec.EnergyStart = plant.PackageRange - units.Joule
	n := testkit.Need(emulator.NewNode(t.TempDir(), spec))(t)
	defer func() { _ = n.Close() }()
	wraps, last := 0, units.Energy(0)
	for range 100 {
		run(t, n, step, 1)
		var now units.Energy
		if _, err := fmt.Sscan(read(t, n, zone+"energy_uj"), &now); err != nil {
			t.Fatal(err)
		}
		if now != n.Plant().PackageEnergy() {
			t.Fatalf("energy_uj shows %d, the plant has %d", now, n.Plant().PackageEnergy())
		}
		if now < last {
			wraps++
		}
		last = now
	}
	if wraps != 1 {
		t.Errorf("counter wrapped %d times", wraps)
	}
}

func BenchmarkNodeStep(b *testing.B) {
	n := newNode(b)
	for b.Loop() {
		run(b, n, step, 0.7)
	}
}
