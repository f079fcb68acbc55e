package agent

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// freqRung is the frequency rung: ceilings on all policies. It belongs to the
// owner goroutine.
type freqRung struct {
	set   *dvfs.Set
	hands *dvfs.Ceilings // nil: it may only be read
	law   capping.FreqState
	cfg   capping.FreqConfig
	act   capping.FreqActions

	requested map[string]units.Freq // by policy; what the law wants, bounded by an operator's own ceiling
	written   map[string]units.Freq
	report    dvfs.Report // as read back
	used      bool        // something was written
	rewroteAt time.Duration
}

// openFreq finds the cpufreq policies.
func (m *machine) openFreq(cfg config.Config, enforce bool) {
	m.freqInfo = capping.RungInfo{Rung: capping.RungFreq, State: capping.RungMissing}
	set, err := dvfs.Open(m.root)
	if err != nil {
		m.freqInfo.Text = err.Error()
		return
	}
	m.freq = &freqRung{set: set, requested: map[string]units.Freq{}, written: map[string]units.Freq{}}
	m.freq.configure(cfg)
	if !cfg.CPUFreq {
		m.freqInfo.State, m.freqInfo.Text = capping.RungOff, "cpufreq is false in powerd.yaml"
		return
	}
	if why := cfg.Controls.DeniedFreq(set.Policies()); why != "" {
		m.freqInfo.State, m.freqInfo.Text = capping.RungOff, why
		return
	}
	m.freqInfo.State = capping.RungReady
	if open := m.freq.unbounded(m.root); open > 0 {
		m.freqInfo.State = capping.RungRefused
		m.freqInfo.Text = fmt.Sprintf("%d CPUs that are online belong to no policy that can be bounded", open)
		return
	}
	if !enforce {
		return
	}
	if m.freq.hands, err = set.Ceilings(); err != nil {
		m.freqInfo.State, m.freqInfo.Text = capping.RungRefused, err.Error()
		return
	}
	m.freq.hands.Leave(func(p *dvfs.Policy) error { // one that comes later: the others hold, and what it may draw is charged
		if why := cfg.Controls.Denied(config.PolicyNames(p)); why != "" {
			return config.DeniedError{Why: why}
		}
		return nil
	})
}

// onlineFile lists the CPUs that are online, as ranges: "0-3,6".
const onlineFile = "sys/devices/system/cpu/online"

// unbounded counts the online CPUs that no policy bounds; 0 where the machine does
// not say which are online.
func (f *freqRung) unbounded(root *os.Root) int {
	text, err := sysfs.ReadText(root, onlineFile)
	if err != nil {
		return 0
	}
	online := 0
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 16)
		last := first
		if isRange && err == nil {
			last, err = strconv.ParseUint(to, 10, 16)
		}
		if err != nil || last < first {
			return 0
		}
		online += int(last-first) + 1
	}
	for _, p := range f.set.Policies() {
		online -= len(p.CPUs)
	}
	return max(0, online)
}

// configure tells the law which frequencies there are. Policies that differ (big
// and small cores) share the range of all; each takes what lies in its own.
func (f *freqRung) configure(cfg config.Config) {
	all := f.set.Policies()
	f.cfg = capping.FreqConfig{
		Config: capping.Config{Other: cfg.Power.Other, Efficiency: cfg.Power.SupplyEfficiency},
		Min:    all[0].Min, Max: all[0].Max, Policies: len(all), Rated: cfg.Power.Rated, Floor: cfg.Power.Floor, Strict: true,
		Rungs: all[0].Table,
	}
	for _, p := range all {
		f.cfg.Min, f.cfg.Max = min(f.cfg.Min, p.Min), max(f.cfg.Max, p.Max)
		if !slices.Equal(p.Table, all[0].Table) {
			f.cfg.Rungs = nil
		}
	}
}

// widen takes in that policies reach further than when the law was told: a powerd that
// began with turbo off meets it on. What they no longer reach stays: the node is rated
// at its highest frequency.
func (f *freqRung) widen() {
	for _, p := range f.set.Policies() {
		f.cfg.Min, f.cfg.Max = min(f.cfg.Min, p.Min), max(f.cfg.Max, p.Max)
	}
}

// standing are the ceilings that stand now: what is not known counts as lowest.
func (f *freqRung) standing() map[string]units.Freq {
	most := map[string]units.Freq{}
	for _, p := range f.set.Policies() {
		most[p.Name] = p.Min
		if now, err := p.CeilingNow(); err == nil {
			most[p.Name] = now
		}
	}
	return most
}

// willCharge is the draw at full load under what is requested, and was lately.
func (f *freqRung) willCharge() units.Power { return f.act.Charge }

// controls are all files that the rung may write, in the order of putting back.
func (f *freqRung) controls() []originals.Control {
	var all []originals.Control
	for _, k := range f.hands.Knobs() {
		all = append(all, originals.FileControl(k.Control, k.Label, originals.Frequency))
	}
	return all
}

// step decides the ceilings that go with a cap. Where nothing measures power at
// all, the model alone decides anew each time: a law that never raises on unknown
// power would never raise.
func (f *freqRung) step(in capping.FreqSample, granted units.Power, blind bool, law capping.Config) {
	if blind {
		f.law = capping.FreqState{}
	}
	f.cfg.Config = law
	f.act, f.law = capping.StepFreq(in, granted, f.law, f.cfg)
}

// request spreads the law's ceilings over the policies, below an operator's own;
// 0 is none.
func (f *freqRung) request(law bool, own units.Freq) {
	clear(f.requested)
	for i, p := range f.set.Policies() {
		want := p.Max
		if law {
			want = f.act.Low
			if i < f.act.HighPolicies {
				want = f.act.High
			}
		}
		if own > 0 {
			want = min(want, own)
		}
		f.requested[p.Name] = p.Nearest(want)
	}
}

// readBack reads what the ceilings are now.
func (f *freqRung) readBack() {
	if f.hands != nil {
		f.report = f.hands.ReadBack()
	}
}

// drifted are the policies that hold more than was written.
func (f *freqRung) drifted() []string { return f.report.Drifted() }

// due says whether anything has to be written: a wish that changed, or another
// writer's change, when that is to be written over.
func (f *freqRung) due(rewrite bool) bool {
	for name, want := range f.requested {
		if f.written[name] != want {
			return true
		}
	}
	if !rewrite {
		return false
	}
	return !f.report.Held()
}

// write brings every policy to at most what was requested, and to no more than
// most where that is above 0. note is called before each value is written.
func (f *freqRung) write(most map[string]units.Freq, note func(path string, value, before int64) error) error {
	want := func(name string) units.Freq {
		w := f.requested[name]
		if m, ok := most[name]; ok {
			w = min(w, m)
		}
		return w
	}
	stay, unnoted := f.note(want, note)
	to := func(name string) units.Freq {
		w := want(name)
		if s, ok := stay[name]; ok {
			w = min(w, s)
		}
		return w
	}
	f.used = true
	f.report = f.hands.SetEach(func(p *dvfs.Policy) units.Freq { return to(p.Name) })
	for _, p := range f.set.Policies() {
		f.written[p.Name] = to(p.Name)
	}
	if len(f.report.Drifted()) > 0 {
		unnoted = errors.Join(unnoted, errNotLower)
	}
	return errors.Join(f.report.Err(), unnoted)
}

// errNotLower reports a ceiling above what was written.
var errNotLower = errors.New("a frequency ceiling reads back higher than it was written")

// note records every value that write may leave behind. Policies whose record could not
// be written stay where they are, and keep the others from nothing.
func (f *freqRung) note(want func(string) units.Freq, note func(path string, value, before int64) error) (stay map[string]units.Freq, err error) {
	var errs []error
	stay = map[string]units.Freq{}
	for _, k := range f.hands.Knobs() {
		file := k.Control.Path()
		now, err := k.Control.Read()
		if err != nil {
			continue // offline: nothing is written there
		}
		name := path.Base(path.Dir(file))
		to := int64(want(name))
		if path.Base(file) == originals.FloorFile {
			to = min(to, now)
		}
		if to == now {
			continue
		}
		if err := note(file, to, now); err != nil {
			errs = append(errs, err)
			stay[name] = units.Freq(now)
		}
	}
	return stay, errors.Join(errs...)
}

// charge is what the node draws at full load under what reads back, at the wall:
// under what was written while that is held, else under the highest ceiling there
// is. False where one cannot be read.
func (f *freqRung) charge() (units.Power, bool) {
	highest, known := f.report.Highest()
	switch {
	case !known:
		return 0, false
	case f.report.Held():
		return f.act.Charge, true
	}
	return f.cfg.Charge(highest, f.law), true
}

func (f *freqRung) close() error {
	var err error
	if f.hands != nil {
		err = f.hands.Close()
	}
	return errors.Join(err, f.set.Close())
}
