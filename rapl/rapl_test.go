// Claims: zones are found by name and device; one zone under several links is
// one zone; however a counter is sampled the pieces add up to the whole, a reset
// is unknown, and the first difference after an error is dropped; a limit that
// does not read back is an error; 0 W is never written.
package rapl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/units"
)

// machine is a powercap tree of plain files in the real shape.
type machine struct {
	t    testing.TB
	dir  string
	root *os.Root
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := bareMachine(t)
	m.mkdir(classDir)
	return m
}

// bareMachine is a root with nothing in it.
func bareMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	m.root = root
	return m
}

func (m *machine) mkdir(path string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Join(m.dir, path), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, path), []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// zone adds a zone directory under devices and its link under class.
func (m *machine) zone(under, id, name string, files map[string]string) string {
	m.t.Helper()
	dir := "sys/devices/virtual/powercap/" + under + "/" + id
	m.mkdir(dir)
	m.write(dir+"/name", name+"\n")
	for f, text := range files {
		m.write(dir+"/"+f, text)
	}
	link := filepath.Join(m.dir, classDir, id)
	if err := os.Symlink("../../devices/virtual/powercap/"+under+"/"+id, link); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

func packageFiles(energy int64) map[string]string {
	return map[string]string{
		"energy_uj": fmt.Sprintln(energy), "max_energy_range_uj": "262143328850\n", "enabled": "1\n",
		// The order is not the usual one, on purpose: constraints are found by name.
		"constraint_0_name": "short_term\n", "constraint_0_power_limit_uw": "250000000\n",
		"constraint_0_time_window_us": "2440\n", "constraint_0_max_power_uw": "0\n",
		"constraint_1_name": "long_term\n", "constraint_1_power_limit_uw": "200000000\n",
		"constraint_1_time_window_us": "999424\n", "constraint_1_max_power_uw": "200000000\n",
	}
}

func (m *machine) open() *Tree {
	m.t.Helper()
	tree, err := Open(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = tree.Close() })
	return tree
}

// twoSockets is a machine whose platform zone was registered first, as on some
// servers, so that zone 1 is socket 0.
func twoSockets(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.mkdir("sys/devices/virtual/powercap/intel-rapl")
	if err := os.Symlink("../../devices/virtual/powercap/intel-rapl", filepath.Join(m.dir, classDir, "intel-rapl")); err != nil {
		t.Fatal(err)
	}
	m.zone("intel-rapl", "intel-rapl:0", "psys", map[string]string{"energy_uj": "1\n"})
	m.zone("intel-rapl", "intel-rapl:1", "package-0", packageFiles(10))
	m.zone("intel-rapl", "intel-rapl:2", "package-1", packageFiles(20))
	m.zone("intel-rapl/intel-rapl:1", "intel-rapl:1:0", "core", map[string]string{"energy_uj": "2\n"})
	m.zone("intel-rapl/intel-rapl:1", "intel-rapl:1:1", "dram", map[string]string{"energy_uj": "3\n", "max_energy_range_uj": "65712999613\n"})
	m.zone("intel-rapl/intel-rapl:2", "intel-rapl:2:0", "dram", map[string]string{"energy_uj": "4\n"})
	m.zone("intel-rapl-mmio", "intel-rapl-mmio:0", "package-0", packageFiles(10))
	return m
}

// Lesson 3: the platform zone may be registered first, so that zone 1 is socket 0; twins repeat
// a package.
func TestZonesByNameNotIndex(t *testing.T) {
	t.Parallel()
	tree := twoSockets(t).open()
	var labels []string
	for _, z := range tree.Zones() {
		labels = append(labels, z.Kind.String()+"="+z.Label)
	}
	want := "package=package-0 core=core-0 dram=dram-0 package=package-1 dram=dram-1 psys=psys package=package-0-mmio"
	if got := strings.Join(labels, " "); got != want {
		t.Errorf("zones\n got %s\nwant %s", got, want)
	}
	if got := len(tree.OfKind(Package)); got != 2 {
		t.Errorf("%d independent packages, want 2: the MMIO twin counts the same watts", got)
	}
	first := tree.OfKind(Package)[0]
	if twins := tree.Twins(first); len(twins) != 1 || twins[0].Control != ControlMMIO {
		t.Errorf("twins of %s: %v, want its MMIO one", first.Label, twins)
	}
	if c, err := first.Constraint(LongTerm); err != nil || c.PowerMax != 200*units.Watt {
		t.Errorf("long_term %+v, %v", c, err)
	}
	if d := tree.OfKind(DRAM)[0]; d.Range != 65712999613 || d.Parent != first {
		t.Errorf("dram-0 has range %d and parent %v", d.Range, d.Parent)
	}
}

// Lesson 4: a zone under two links is one, and its watts count once.
func TestOneZoneUnderTwoLinksIsOne(t *testing.T) {
	t.Parallel()
	m := twoSockets(t)
	if err := os.Symlink("intel-rapl:1", filepath.Join(m.dir, classDir, "intel-rapl:9")); err != nil {
		t.Fatal(err)
	}
	if got := len(m.open().OfKind(Package)); got != 2 {
		t.Errorf("%d packages, want 2", got)
	}
}

func TestNoTree(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	if _, err := Open(root); !errors.Is(err, ErrNoTree) {
		t.Errorf("error %v, want ErrNoTree", err)
	}
	if _, err := Open(newMachine(t).root); !errors.Is(err, ErrNoZone) {
		t.Errorf("error %v, want ErrNoZone", err)
	}
}

// Lesson 1: however the counter is sampled, the pieces add up to the whole.
func TestSpentAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		span := units.Energy(rapid.Int64Range(4, 1<<38).Draw(t, "span"))
		at := units.Energy(rapid.Int64Range(0, int64(span)-1).Draw(t, "start"))
		var whole, sum units.Energy
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			d := units.Energy(rapid.Int64Range(0, int64(span)-1).Draw(t, "d"))
			next := (at + d) % span
			piece, why := spent(at, next, span, span-1)
			if why != WhyMeasured {
				t.Fatalf("piece from %d to %d is unknown", at, next)
			}
			whole, sum, at = whole+d, sum+piece, next
		}
		if sum != whole {
			t.Fatalf("summed %d, want %d", sum, whole)
		}
	})
}

func TestMeter(t *testing.T) {
	t.Parallel()
	const span = 1000 * units.Joule
	type look struct {
		at    time.Duration
		count units.Energy
		known bool
		power units.Power
	}
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"steady", []look{{0, 0, false, 0}, {time.Second, 100 * units.Joule, true, 100 * units.Watt}}},
		{"wrap", []look{{0, 950 * units.Joule, false, 0}, {time.Second, 50 * units.Joule, true, 100 * units.Watt}}},
		{"reset", []look{{0, 600 * units.Joule, false, 0}, {time.Second, 0, false, 0}, {2 * time.Second, 100 * units.Joule, true, 100 * units.Watt}}},
		{"jump ahead", []look{{0, 0, false, 0}, {time.Second, 900 * units.Joule, false, 0}}},
		{"gap long enough for two wraps", []look{{0, 0, false, 0}, {5 * time.Second, 100 * units.Joule, false, 0}}},
		{"same moment", []look{{0, 0, false, 0}, {0, 0, false, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &Meter{span: span, powerMax: 200 * units.Watt}
			for _, l := range c.looks {
				p, known := m.next(l.count, Moment{l.at, l.at}).Power()
				if known != l.known || p != l.power {
					t.Errorf("at %v: %v known=%v, want %v known=%v", l.at, p, known, l.power, l.known)
				}
			}
		})
	}
}

// Lesson 2: the first difference after an error spans a time that nobody watched.
func TestFirstLookAfterErrorIsDropped(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	meter := NewMeter(m.open().Zones()[0])
	steps := []struct {
		text  string
		known bool
		fails bool
	}{
		{"0", false, false},
		{"10000000", true, false},
		{"garbage", false, true},
		{"900000000", false, false},
		{"910000000", true, false},
	}
	for i, s := range steps {
		m.write(dir+"/energy_uj", s.text+"\n")
		r, err := meter.Look(time.Duration(i) * time.Second)
		if r.Known != s.known || (err != nil) != s.fails {
			t.Errorf("step %d (%s): known %v, error %v", i, s.text, r.Known, err)
		}
	}
}

// Lesson 4: the long-term limit is constraint 1 here; it is found by its name.
func TestLimiterWritesByName(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	l, err := m.open().Zones()[0].Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if got, err := l.SetPower(LongTerm, 95*units.Watt); err != nil || got != 95*units.Watt {
		t.Fatalf("reads %v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(m.dir, dir, "constraint_1_power_limit_uw"))
	if err != nil || !strings.HasPrefix(string(text), "95000000\n") {
		t.Errorf("file holds %q, %v", text, err)
	}
	if got, err := l.SetWindow(LongTerm, 250*time.Millisecond); err != nil || got != 250*time.Millisecond {
		t.Errorf("window reads %v, %v", got, err)
	}
	if err := l.Enable(); err != nil {
		t.Error(err)
	}
	if got := len(l.Controls()); got != 5 {
		t.Errorf("%d controls, want 5: two limits, two windows, one switch", got)
	}
}

// Lesson 6: 0 W, or less, never reaches a file.
func TestZeroIsNeverWritten(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	l, err := m.open().Zones()[0].Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, p := range []units.Power{0, -units.Watt} {
		if _, err := l.SetPower(LongTerm, p); !errors.Is(err, ErrZeroLimit) {
			t.Errorf("%v: error %v, want ErrZeroLimit", p, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(m.dir, dir, "constraint_1_power_limit_uw"))
	if err != nil || string(text) != "200000000\n" {
		t.Errorf("file holds %q, %v", text, err)
	}
}

// A limit file that keeps its old value, as a kernel that ignores the failed
// register write shows it: here reading and writing are two files.
func TestRefusedLimitIsAnError(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	dir := m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	z := m.open().Zones()[0]
	l, err := z.Limiter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	file := filepath.Join(m.dir, dir, "constraint_1_power_limit_uw")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	// What stands behind the held descriptors is gone for others, so that a
	// locked register has to be played by a device that swallows writes.
	l.power[LongTerm], err = swallow(t, m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.SetPower(LongTerm, 95*units.Watt)
	var refused *WriteError
	if !errors.As(err, &refused) || refused.Want != 95*units.Watt {
		t.Fatalf("error %v, want a WriteError", err)
	}
}

func TestRounding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got units.Power
		same      bool
	}{
		{25_060_000, 25_000_000, true},
		{25_000_000, 25_125_000, true},
		{25_000_000, 25_126_000, false},
	} {
		if Same(c.want, c.got) != c.same {
			t.Errorf("Same(%d, %d) is %v", c.want, c.got, !c.same)
		}
	}
}

func TestSampleMakesNoGarbage(t *testing.T) {
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(5))
	tree := m.open()
	meter := NewMeter(tree.Zones()[0])
	now := time.Duration(0)
	if n := testing.AllocsPerRun(100, func() { now += time.Second; _, _ = meter.Look(now) }); n != 0 {
		t.Errorf("%v allocations for a sample, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = tree.Binding(tree.Zones()[0], LongTerm) }); n != 0 {
		t.Errorf("%v allocations for reading back what binds, want none", n)
	}
}

func BenchmarkSample(b *testing.B) {
	dir := b.TempDir()
	file := filepath.Join(dir, "e")
	if err := os.WriteFile(file, []byte(strconv.Itoa(262143328850)+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	benchmarkReads(b, root)
}
