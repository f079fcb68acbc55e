package machine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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

// Frequency is the frequency rung: ceilings on all policies. It belongs to the
// owner goroutine.
type Frequency struct {
	Set      *dvfs.Set
	Ceilings *dvfs.Ceilings // nil: it may only be read
	State    capping.FreqState
	Config   capping.FreqConfig
	Actions  capping.FreqActions

	requested map[string]units.Freq // by policy; what the law wants, bounded by an operator's own ceiling
	Written   map[string]units.Freq
	Report    dvfs.Report // as read back
	Used      bool        // something was written
	RewroteAt time.Duration

	reach map[string]capping.FreqRange // by policy: what it can hold, up to the highest ever seen
	files planned
}

// openFreq finds the cpufreq policies.
func (m *Machine) openFreq(cfg *config.Config, enforce bool) {
	m.FreqInfo = capping.RungInfo{Rung: capping.RungFreq, State: capping.RungMissing}
	set, err := dvfs.OpenIn(m.Files)
	if err != nil {
		m.FreqInfo.Text = err.Error()
		return
	}
	m.Freq = &Frequency{Set: set, requested: map[string]units.Freq{}, Written: map[string]units.Freq{}, reach: map[string]capping.FreqRange{}}
	m.Freq.configure(cfg)
	if !cfg.CPUFreq {
		m.FreqInfo.State, m.FreqInfo.Text = capping.RungOff, "cpufreq is false in powerd.yaml"
		return
	}
	if why := cfg.Controls.DeniedFreq(set.Policies()); why != "" {
		m.FreqInfo.State, m.FreqInfo.Text = capping.RungOff, why
		return
	}
	m.FreqInfo.State = capping.RungReady
	if open := m.Freq.unbounded(m.Root); open > 0 {
		m.FreqInfo.State = capping.RungRefused
		m.FreqInfo.Text = fmt.Sprintf("%d online CPUs belong to no policy with a frequency limit", open)
		return
	}
	m.FreqInfo.Text = m.Freq.fixed()
	if !m.Freq.Config.Travels() {
		m.FreqInfo.State = capping.RungFixed
		return
	}
	if !enforce {
		return
	}
	if m.Freq.Ceilings, err = set.Ceilings(); err != nil {
		m.FreqInfo.State, m.FreqInfo.Text = capping.RungRefused, err.Error()
		return
	}
	m.Freq.Ceilings.Leave(func(p *dvfs.Policy) error { // one that comes later: the others hold, and what it may draw is charged
		if why := cfg.Controls.Denied(config.PolicyNames(p)); why != "" {
			return config.DeniedError{Why: why}
		}
		return nil
	})
	m.Freq.files = planFiles(len(set.Policies()))
}

// onlineFile lists the CPUs that are online, as ranges: "0-3,6".
const onlineFile = "sys/devices/system/cpu/online"

// unbounded counts the online CPUs that no policy bounds; 0 where the machine does
// not say which are online.
func (f *Frequency) unbounded(root *os.Root) int {
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
	for _, p := range f.Set.Policies() {
		online -= len(p.CPUs)
	}
	return max(0, online)
}

// configure tells the law which frequencies there are. Policies that differ (big
// and small cores) share the range of all; each takes what lies in its own.
func (f *Frequency) configure(cfg *config.Config) {
	all := f.Set.Policies()
	f.Config = capping.FreqConfig{
		Config:   capping.Config{Other: cfg.Power.Other, Efficiency: cfg.Power.SupplyEfficiency},
		Policies: len(all), Rated: cfg.Power.Rated, Floor: cfg.Power.Floor, Strict: true, Rungs: all[0].Table,
	}
	for _, p := range all {
		if !slices.Equal(p.Table, all[0].Table) {
			f.Config.Rungs = nil
		}
	}
	f.Follow()
}

// Follow takes in what the policies can hold now: a powerd that began with turbo off meets
// it on, and firmware may take a range away. The highest frequency ever seen stays: the
// node is rated at it.
//
//headroom:control
func (f *Frequency) Follow() {
	kinds := map[capping.FreqRange]int{}
	for _, p := range f.Set.Policies() {
		now := capping.FreqRange{Min: p.Nearest(p.Min), Max: max(p.Nearest(p.Max), f.reach[p.Name].Max)}
		f.reach[p.Name] = now
		kinds[now] += max(1, len(p.CPUs))
	}
	f.Config.Ranges, f.Config.Min, f.Config.Max = nil, math.MaxInt64, 0
	for kind, cpus := range kinds {
		f.Config.Min, f.Config.Max = min(f.Config.Min, kind.Min), max(f.Config.Max, kind.Max)
		kind.CPUs = cpus
		if len(kinds) > 1 {
			f.Config.Ranges = append(f.Config.Ranges, kind)
		}
	}
	slices.SortFunc(f.Config.Ranges, func(a, b capping.FreqRange) int { return cmp.Or(cmp.Compare(a.Min, b.Min), cmp.Compare(a.Max, b.Max)) })
}

// fixed says how many CPUs have one frequency only, "" for none.
func (f *Frequency) fixed() string {
	all, fixed := 0, 0
	for _, p := range f.Set.Policies() {
		all += max(1, len(p.CPUs))
		if r := f.reach[p.Name]; r.Min >= r.Max {
			fixed += max(1, len(p.CPUs))
		}
	}
	switch fixed {
	case 0:
		return ""
	case all:
		return "no CPU has more than one frequency"
	}
	return fmt.Sprintf("%d of %d CPUs have one frequency only", fixed, all)
}

// Standing are the ceilings that stand now: what is not known counts as lowest.
func (f *Frequency) Standing() map[string]units.Freq {
	most := map[string]units.Freq{}
	for _, p := range f.Set.Policies() {
		most[p.Name] = p.Min
		if now, err := p.CeilingNow(); err == nil {
			most[p.Name] = now
		}
	}
	return most
}

// WillCharge is the draw at full load under what is requested, and was lately.
func (f *Frequency) WillCharge() units.Power { return f.Actions.Charge }

// Controls are all files that the rung may write, in the order of putting back.
func (f *Frequency) Controls() []originals.Control {
	var all []originals.Control
	for _, k := range f.Ceilings.Knobs() {
		all = append(all, originals.FileControl(k.Control, k.Label, originals.Frequency))
	}
	return all
}

// Step decides the ceilings that go with a cap. Where nothing measures power at
// all, the model alone decides anew each time: a law that never raises on unknown
// power would never raise.
//
//headroom:control
func (f *Frequency) Step(in capping.FreqSample, granted units.Power, blind bool, law capping.Config) {
	if blind {
		f.State = capping.FreqState{}
	}
	f.Config.Config = law
	f.Actions, f.State = capping.StepFreq(in, granted, f.State, f.Config)
}

// Request spreads the law's ceilings over the policies, below an operator's own;
// 0 is none.
//
//headroom:control
func (f *Frequency) Request(law bool, own units.Freq) {
	clear(f.requested)
	for i, p := range f.Set.Policies() {
		want := p.Max
		if law {
			want = f.Actions.Low
			if i < f.Actions.HighPolicies {
				want = f.Actions.High
			}
		}
		if own > 0 {
			want = min(want, own)
		}
		f.requested[p.Name] = p.Nearest(want)
	}
}

// ReadBack reads what the ceilings are now.
//
//headroom:control
func (f *Frequency) ReadBack() {
	if f.Ceilings != nil {
		f.Report = f.Ceilings.ReadBack()
	}
}

// Drifted are the policies that hold more than was written.
func (f *Frequency) Drifted() []string { return f.Report.Drifted() }

// Due reports whether anything has to be written: a wish that changed, or another
// writer's change, when that is to be written over.
func (f *Frequency) Due(rewrite bool) bool {
	for name, want := range f.requested {
		if f.Written[name] != want {
			return true
		}
	}
	if !rewrite {
		return false
	}
	return !f.Report.Held()
}

// Write brings every policy to at most what was requested, and to no more than
// most where that is above 0. note is called before each value is written.
//
//headroom:control
func (f *Frequency) Write(most map[string]units.Freq, note func(path string, value, before int64) error) error {
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
	f.Used = true
	f.Ceilings.Hold(f.files.ceilings())
	f.Report = f.Ceilings.SetEach(func(p *dvfs.Policy) units.Freq { return to(p.Name) })
	for _, p := range f.Set.Policies() {
		f.Written[p.Name] = to(p.Name)
	}
	if len(f.Report.Drifted()) > 0 {
		unnoted = errors.Join(unnoted, ErrNotLower)
	}
	return errors.Join(f.Report.Err(), unnoted)
}

// ErrNotLower reports a ceiling above what was written.
var ErrNotLower = errors.New("frequency ceiling reads back higher than written")

// note records every value that Write may leave behind. Policies whose record could not
// be written are not changed, and do not prevent changes of the others.
func (f *Frequency) note(want func(string) units.Freq, note func(path string, value, before int64) error) (stay map[string]units.Freq, err error) {
	var errs []error
	stay = map[string]units.Freq{}
	for _, k := range f.Ceilings.Knobs() {
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
	return stay, dvfs.Several(errs)
}

// Charge is what the node draws at full load under what reads back, at the wall:
// under what was written while that is held, else under the highest ceiling there
// is. False where one cannot be read.
//
//headroom:control
func (f *Frequency) Charge() (units.Power, bool) {
	highest, known := f.Report.Highest()
	switch {
	case !known:
		return 0, false
	case f.Report.Held():
		return f.Actions.Charge, true
	}
	return f.Config.Charge(highest, f.State), true
}

// close closes the descriptors; ceilings stay as they are.
func (f *Frequency) close() error {
	var err error
	if f.Ceilings != nil {
		err = f.Ceilings.Close()
	}
	return errors.Join(err, f.Set.Close())
}

// Speed is the highest ceiling in force as a share of the highest frequency; 1 where
// that is not known.
func (f *Frequency) Speed() float64 {
	if f == nil {
		return 1
	}
	highest, known := f.Report.Highest()
	if !known {
		return 1
	}
	return highest.Hertz() / f.Config.Max.Hertz()
}
