// Claims: whatever stands in any one file of a machine, found so at the start or
// turned so while powerd runs, and whatever a BMC answers: nothing panics, no limit
// of 0 W is written, the node draws no more than it reports to hold, what it
// changed goes back, and what it lacks is said in status, metrics and log alike.
package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit/emulated"
	"headroom/lease"
	"headroom/rapl"
	"headroom/units"
)

// memDisk is a state directory in memory: what is tested here is the machine.
type memDisk struct {
	mu    sync.Mutex
	files map[string][]byte
}

func newMemDisk() *memDisk { return &memDisk{files: map[string][]byte{}} }

func (d *memDisk) Read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	data, ok := d.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return data, nil
}

func (d *memDisk) Durable(name string, data []byte) error { return d.Replace(name, data) }

func (d *memDisk) Replace(name string, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] = data
	return nil
}

func (d *memDisk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return nil
}

// book is a log that can be read again.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// stand is an emulated machine under full load and a node on it. The test turns the
// time of both, so that seconds cost milliseconds.
type stand struct {
	t       *testing.T
	machine *emulated.Machine
	cfg     config.Config
	disk    *memDisk
	log     *book
	n       *node
	now     lease.Instant
	turned  int
	stamp   uint64
	spoiled func() // makes one file wrong again after the machine has stepped
	what    string // is wrong, for messages

	found    map[string][]byte                  // in the state directory
	openTree func(*os.Root) (*rapl.Tree, error) // nil: as powerd does
}

func newStand(t *testing.T, shape string, gone ...string) *stand {
	t.Helper()
	dir := t.TempDir()
	machine := emulated.Start(t, emulated.Options{Dir: dir, Shape: shape})
	s := machine.Spec
	for _, g := range gone {
		if err := os.RemoveAll(filepath.Join(machine.Root(), g)); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce, cfg.Rivals = "n01", "rack/r1", true, config.RivalsFight
	cfg.Root, cfg.StateDir = machine.Root(), filepath.Join(dir, "state")
	cfg.Power = config.Power{
		Rated: s.Rated, Floor: s.Floor, Max: s.Rated, FailSafe: s.FailSafe,
		Other: s.Other, SupplyEfficiency: s.Efficiency,
	}
	b := &stand{t: t, machine: machine, cfg: cfg, now: instant(), spoiled: func() {}}
	b.step(2 * time.Second)
	return b
}

func (b *stand) step(d time.Duration) {
	_ = b.machine.Step(d, 1) // a file that is gone does not stop the machine
	b.spoiled()
}

// boot starts a powerd that finds nothing in its state directory but what is given.
func (b *stand) boot() error {
	b.disk, b.log, b.turned = newMemDisk(), &book{}, 0
	maps.Copy(b.disk.files, b.found)
	log := slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	file, err := statedir.Lock(b.cfg.StateDir)
	if err != nil {
		return err
	}
	n := newNode(b.cfg, log, b.disk)
	n.lock, n.control.began = file, instant().Boot
	if b.openTree != nil {
		n.openTree = b.openTree
	}
	if err := n.boot(); err != nil {
		b.n = nil
		return err
	}
	b.n = n
	n.records.Start()
	b.now.Boot = max(b.now.Boot, instant().Boot)
	b.now.Awake = b.now.Boot
	return nil
}

// grant gives the node a lease of an hour from now.
func (b *stand) grant(to units.Power) {
	b.stamp++
	err := answer(b.n.lease, lease.Grant{
		Stamp: lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 1}, Seq: b.stamp}, Cap: to, FailSafe: b.cfg.Power.FailSafe,
		Duration: time.Minute,
	}, b.now)
	if err != nil {
		b.t.Errorf("%s: %v", b.what, err)
	}
}

// turn turns the node's loop, with what the writer and the housekeeping do.
func (b *stand) turn(times int) {
	for range times {
		if b.turned%4 == 0 { // a heartbeat tells the excess, and it counts anew
			b.n.reported(b.now)
		}
		b.step(period)
		b.now.Boot, b.now.Awake = b.now.Boot+period, b.now.Awake+period
		b.n.turn(b.now)
		for b.n.records.Busy() {
			b.n.stored(<-b.n.records.Writer.Done())
		}
		if b.turned++; b.turned%4 == 0 {
			b.n.housekeep(b.t.Context(), b.now)
		}
		b.checkWrites()
	}
}

// checkWrites demands that nothing that was written is a limit of 0 W, or a
// frequency of nothing.
func (b *stand) checkWrites() {
	if b.n.records.Journal == nil || b.n.records.Trail == nil {
		return
	}
	for _, c := range b.n.records.Journal.Controls {
		if v, ever := b.n.records.Trail.Wrote(c.Path); ever && v.Number <= 0 && (c.Kind == originals.Power || c.Kind == originals.Frequency || c.Kind == originals.Window) {
			b.t.Errorf("%s: %d was written to %s", b.what, v.Number, c.Label)
		}
	}
}

// told is what status, metrics and log say.
func (b *stand) told() (s *headroomv1.GetAgentStatusResponse, metrics, log string) {
	s = b.n.report.details(b.now)
	return s, exposed(b.t, s), b.log.String()
}

// drawn is the power at the wall over the last second: the truth.
func (b *stand) drawn() units.Power { return b.machine.Wall() }

// slack is what a mean over a second may stand above a cap.
const slack = 1.03

// judge demands that the node draws no more than it says, and that all that it
// lacks is said everywhere.
func (b *stand) judge() {
	b.t.Helper()
	s, metrics, log := b.told()
	h := s.GetHolding()
	for _, i := range s.GetHealth() {
		if i.GetText() == "" || i.GetHint() == "" {
			b.t.Errorf("%s: %s says nothing: %v", b.what, i.GetCode(), i)
		}
		if want := fmt.Sprintf("headroom_health{code=%q,severity=%q} 1\n", i.GetCode(), i.GetSeverity()); !strings.Contains(metrics, want) {
			b.t.Errorf("%s: %s is in status and not in metrics", b.what, i.GetCode())
		}
		if !strings.Contains(log, "code="+i.GetCode()+" ") {
			b.t.Errorf("%s: %s is in status and not in the log", b.what, i.GetCode())
		}
	}
	if want := fmt.Sprintf("headroom_node_rung{rung=%q} 1\n", s.GetRung()); !strings.Contains(metrics, want) {
		b.t.Errorf("%s: the metrics do not tell rung %s", b.what, s.GetRung())
	}
	items := len(s.GetHealth())
	uncontrolled := b.n.control.mode != holding
	switch {
	case uncontrolled && !hasStatusItem(s, noRungCode):
		b.t.Errorf("%s: an uncontrolled node does not say so: %v", b.what, s.GetHealth())
	case !uncontrolled && !strings.Contains(log, "rung="+s.GetRung()):
		b.t.Errorf("%s: the log does not tell rung %s", b.what, s.GetRung())
	case s.PowerUw == nil && items == 0:
		b.t.Errorf("%s: power is not known, and nothing says so", b.what)
	case !uncontrolled && h.EffectiveUw == nil && items == 0:
		b.t.Errorf("%s: what the hardware holds is not known, and nothing says so", b.what)
	}
	if wall := b.drawn(); !uncontrolled && wall.Watts() > slack*float64(max(h.GetCapUw(), h.GetEffectiveUw()))/1e6 {
		b.t.Errorf("%s: draws %v, cap %d uW, reported %v; items %v", b.what, wall, h.GetCapUw(), h.EffectiveUw, s.GetHealth())
	}
	if s.PowerUw == nil && strings.Contains(metrics, `headroom_node_power_watts{source="best"}`) {
		b.t.Errorf("%s: metrics tell a power that is not known", b.what)
	}
}

// leave puts the originals back and ends the node.
func (b *stand) leave() {
	if b.n.records.Journal != nil && b.n.control.mode == holding {
		b.n.release.putBack()
	}
	b.n.records.Stop()
	if err := b.n.close(); err != nil {
		b.t.Errorf("%s: %v", b.what, err)
	}
	b.step(period)
}

// alike are the files of which the machine has one for each CPU, policy, sensor
// and thermal zone: the first stands for all.
func alike() *regexp.Regexp {
	return regexp.MustCompile(`/(cpu|policy|thermal_zone)[1-9][0-9]*/|/temp[2-9]_|_total_time_ms$`)
}

// files are the regular files of the machine that match.
func (b *stand) files(match func(path string) bool) []string {
	b.t.Helper()
	var all []string
	err := filepath.WalkDir(b.cfg.Root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && match(path) {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// controls are the values of whatever any rung may write.
func (b *stand) controls() map[string]string {
	b.t.Helper()
	control := regexp.MustCompile(`/intel-rapl:[0-9]+/(constraint_[0-9]_(power_limit_uw|time_window_us)|enabled)$|/scaling_(max_freq|min_freq|governor)$`)
	all := map[string]string{}
	for _, path := range b.files(control.MatchString) {
		data, err := os.ReadFile(path)
		if err != nil {
			b.t.Error(err)
		}
		all[path] = strings.TrimSpace(strings.SplitN(string(data), "\n", 2)[0])
	}
	return all
}

// mutations are the contents that a file is given; gone and denied are told apart.
// Where no limit hangs on the file, fewer of them do.
func mutations(path string) []string {
	all := []string{"", "x\xff\x00y", "9223372036854775807", "-1", "0", "1"}
	if !strings.Contains(path, "/powercap/") && !strings.Contains(path, "/cpufreq/") {
		return all[:3]
	}
	return all
}

// spoil makes the file wrong until heal, whatever the machine writes into it.
func (b *stand) spoil(path, text string) (heal func()) {
	rel := strings.TrimPrefix(path, b.cfg.Root+"/")
	b.what = fmt.Sprintf("%s holds %.24q", rel, text)
	good, err := os.ReadFile(path)
	if err != nil {
		b.t.Error(err)
		return func() {}
	}
	b.spoiled = func() { overwrite(path, text+"\n") }
	b.spoiled()
	return func() {
		b.spoiled = func() {}
		overwrite(path, string(good))
	}
}

// overwrite replaces the content in place, so that open descriptors see it.
func overwrite(path, text string) {
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// ruined is a machine whose files are made wrong one after the other.
type ruined struct {
	name string
	gone []string               // what it never had
	file func(path string) bool // which files
}

// machines stand on either rung; what the second one has to do with is made wrong there.
func machines() []ruined {
	same, freq, both := alike(), regexp.MustCompile(`/cpufreq/`), regexp.MustCompile(`/cpu/online$|/proc/stat$`)
	return []ruined{
		{rungRAPL, nil, func(path string) bool { return !same.MatchString(path) && !freq.MatchString(path) }},
		{
			rungCPUFreq,
			[]string{"sys/class/powercap", "sys/devices/virtual/powercap"},
			func(path string) bool {
				return !same.MatchString(path) && (freq.MatchString(path) || both.MatchString(path))
			},
		},
	}
}

// Lesson 6: every file wrong in every way when powerd starts: it starts and says what
// it lacks, or refuses in words; and it leaves what it found.
func TestEveryFileWrongAtTheStart(t *testing.T) {
	t.Parallel()
	for _, m := range machines() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := newStand(t, "xeon-1s", m.gone...)
			for _, path := range b.files(m.file) {
				for _, text := range mutations(path) {
					before := b.controls()
					heal := b.spoil(path, text)
					b.try()
					heal()
					b.checkBack(before, path)
				}
				b.without(path)
				b.denied(path)
			}
		})
	}
}

// try starts a node, has it cut and raised, and ends it.
func (b *stand) try() {
	if err := b.boot(); err != nil {
		var words *cli.Error
		if !errors.As(err, &words) || words.Message == "" || words.Hint == "" {
			b.t.Errorf("%s: refused without words or a way out: %v", b.what, err)
		}
		return
	}
	b.turn(4)
	if b.n.control.mode == holding {
		b.grant(b.cfg.Power.FailSafe + b.cfg.Power.FailSafe/4)
	}
	b.turn(12)
	b.judge()
	b.leave()
}

// checkBack demands that every control but the spoiled one holds what it held.
func (b *stand) checkBack(before map[string]string, spoiled string) {
	b.t.Helper()
	b.step(12 * period)
	for path, now := range b.controls() {
		if path != spoiled && now != before[path] {
			b.t.Errorf("%s: %s holds %s after the end, it held %s", b.what, path, now, before[path])
			overwrite(path, before[path]+"\n")
			b.step(12 * period)
		}
	}
}

// without tries the machine with the file gone.
func (b *stand) without(path string) {
	b.what = strings.TrimPrefix(path, b.cfg.Root+"/") + " is gone"
	aside := filepath.Join(filepath.Dir(b.cfg.StateDir), "aside")
	if err := os.Rename(path, aside); err != nil {
		b.t.Error(err)
		return
	}
	b.try()
	if err := os.Rename(aside, path); err != nil {
		b.t.Error(err)
	}
}

// denied tries the machine with a file that may not be opened.
func (b *stand) denied(path string) {
	b.what = strings.TrimPrefix(path, b.cfg.Root+"/") + " is denied"
	info, err := os.Stat(path)
	if err != nil {
		b.t.Error(err)
		return
	}
	_ = os.Chmod(path, 0)
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never free it: the thread without its rights ends with this
		err := dropOverride()
		if err == nil {
			b.try()
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		b.t.Error(err)
	}
	_ = os.Chmod(path, info.Mode())
}

// dropOverride takes from this thread the right to open what its user may not.
func dropOverride() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, right := range []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		data[0].Effective &^= 1 << right
	}
	return unix.Capset(&header, &data[0])
}

// Lesson 6: every file turned wrong in every way under a running powerd, and right again: the
// node keeps what it says meanwhile, and is well afterwards.
func TestEveryFileWrongWhileRunning(t *testing.T) {
	t.Parallel()
	for _, m := range machines() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := newStand(t, "xeon-1s", m.gone...)
			b.what = "healthy"
			if err := b.boot(); err != nil {
				t.Fatal(err)
			}
			high, low := b.cfg.Power.FailSafe*2, b.cfg.Power.FailSafe+b.cfg.Power.FailSafe/4
			b.grant(high)
			b.turn(8)
			b.judge()
			for _, i := range b.n.health.List() {
				if i.GetCode() != "sensor" || m.name == rungRAPL { // without RAPL nothing measures
					t.Errorf("a healthy node says %v", i)
				}
			}
			for _, path := range b.files(m.file) {
				for _, text := range mutations(path) {
					heal := b.spoil(path, text)
					b.look(path)
					b.grant(low)
					b.turn(12)
					b.judge()
					heal()
					b.look(path)
					b.grant(high)
					b.turn(8)
					b.what = strings.Replace(b.what, "holds", "held", 1)
					b.judge()
				}
			}
			b.leave()
			if codes := b.codes(); len(codes) > 0 {
				t.Logf("said meanwhile: %s", strings.Join(codes, ", "))
			}
		})
	}
}

// look has the node look again at what it has, where the file belongs to that.
func (b *stand) look(path string) {
	if strings.Contains(path, "hwmon") || strings.Contains(path, "thermal") {
		b.n.hotplug.look(b.n.seconds)
		return
	}
	b.n.hotplug.zones()
	if f := b.n.machine.Freq; f != nil {
		b.n.hotplug.policies(f)
	}
}

// codes are the health items that were ever shown.
func (b *stand) codes() []string {
	var all []string
	for _, m := range regexp.MustCompile(`health item raised" code=(\S+)`).FindAllStringSubmatch(b.log.String(), -1) {
		if !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	return all
}
