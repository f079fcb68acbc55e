// Package machine holds the devices of a node: energy counters of packages and memory,
// limits of packages, and frequency ceilings of cpufreq policies.
//
// A Machine belongs to one goroutine, powerd's loop. Look reads the counters, ReadBack reads
// limits and ceilings. Share and Frequency.Step turn the decisions of the control law into
// values for each package and policy. Write writes a value and verifies it. Only values that
// read back count. Every value is recorded before it is written, by a function of the
// caller; if that fails, the value is not written. An unreadable value is unknown, never 0.
//
// The package decides no cap, stores no file, and knows no coordinator.
package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/capping"
	"headroom/lease"
	"headroom/rapl"
	"headroom/rapl/msr"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Limits is the two limits of one package.
type Limits struct{ Long, Short units.Power }

// AtMost returns the limits, none of them above long and short.
func (l Limits) AtMost(long, short units.Power) Limits {
	return Limits{Long: min(l.Long, long), Short: min(l.Short, short)}
}

// Package is one processor package: its meter and its limiter.
type Package struct {
	Zone    *rapl.Zone
	Meter   *rapl.Meter
	Limiter *rapl.Limiter // nil: it can only be read

	Power     capping.Reading // mean since the look before
	still     time.Duration   // for how long the counter has not moved
	smooth    units.Power     // of the last second or so, for sharing
	found     units.Power     // the long-term limit before an earlier powerd wrote it, 0: unknown
	Requested Limits          // what the law wants
	Written   Limits          // what was last written; 0: nothing yet
	Effective Limits          // what reads back
	Readable  bool            // effective stands on a good reading
	Drifted   bool            // effective differs from written
	Off       bool            // the limits' switch stands at off: nothing bounds the package
	RewroteAt time.Duration   // when another writer's change was last written over
	ResetAt   time.Duration   // the same of windows and clamp
}

// Memory is one DRAM zone.
type Memory struct {
	zone  *rapl.Zone
	meter *rapl.Meter
	power capping.Reading
	still time.Duration
}

// Machine is the node's devices. It belongs to the owner goroutine.
type Machine struct {
	Root     *os.Root
	Files    *sysfs.Files // below Root
	Tree     *rapl.Tree   // nil: no RAPL
	Packages []*Package
	Memories []*Memory
	mirrors  *rapl.Mirrors
	meters   []*rapl.Meter // of sockets, for mirrors
	Freq     *Frequency    // nil: no cpufreq, or it may not be used
	cpu      *cpuUse       // nil: not known

	RAPLInfo, FreqInfo capping.RungInfo
	Ladder             capping.Ladder
	Strange            []string // packages that came after the start, and are not limited
	Lost               []string // packages whose zones are gone while their processors run
	odd                []string // zones that may be memory: of no known kind, or not readable

	LookedAt time.Duration
}

// Open finds the node's devices. What is missing lowers the rung; only a
// tree that cannot be read at all is an error.
func Open(files *sysfs.Files, cfg *config.Config, open func(*os.Root) (*rapl.Tree, error), enforce bool) (*Machine, error) {
	m := &Machine{Root: files.Root(), Files: files, cpu: openCPUUse(files.Root())}
	if err := m.openRAPL(cfg.Controls, open, enforce); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.openFreq(cfg, enforce)
	m.Choose()
	return m, nil
}

// Choose decides the rung by what is known of each.
func (m *Machine) Choose(more ...capping.RungInfo) {
	m.Ladder = capping.Choose(append([]capping.RungInfo{m.RAPLInfo, m.FreqInfo}, more...))
}

// TreeOpener is the way to package power that the configuration asks for, nil for none.
func TreeOpener(source string) func(*os.Root) (*rapl.Tree, error) {
	switch source {
	case config.SourceOff:
		return nil
	case config.SourceMSR:
		return msr.Open
	}
	return rapl.Open
}

// openRAPL finds packages and memory, and the packages' limiters.
func (m *Machine) openRAPL(controls config.Controls, open func(*os.Root) (*rapl.Tree, error), enforce bool) error {
	m.RAPLInfo = capping.RungInfo{Rung: capping.RungRAPL, State: capping.RungMissing}
	if open == nil {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungOff, "rapl.source is off"
		return nil
	}
	tree, err := open(m.Root)
	switch {
	case errors.Is(err, rapl.ErrNoTree) || errors.Is(err, rapl.ErrNoZone):
		m.RAPLInfo.Text = err.Error()
		return nil
	case err != nil:
		return err
	}
	m.Tree = tree
	m.RAPLInfo.State = capping.RungReady
	for _, z := range tree.OfKind(rapl.Package) {
		m.addSocket(z, enforce && controls.Denied(config.PackageNames(z)) == "")
	}
	if why := controls.DeniedRAPL(tree.OfKind(rapl.Package)); why != "" && m.RAPLInfo.State != capping.RungMissing {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungOff, why
	}
	if len(m.Packages) == 0 {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungMissing, "no package zone"
	}
	m.weighRAPL()
	m.mirrors = rapl.NewMirrors(tree.OfKind(rapl.Package))
	for _, z := range tree.OfKind(rapl.DRAM) {
		m.Memories = append(m.Memories, &Memory{zone: z, meter: rapl.NewMeter(z)})
	}
	m.noteOdd()
	return nil
}

// noteOdd finds zones that may be memory but have another name. Ignoring them would
// leave its watts out of every sum.
func (m *Machine) noteOdd() {
	for _, z := range m.Tree.Zones() {
		if z.Kind == rapl.Other {
			m.odd = append(m.odd, fmt.Sprintf("%q (unknown kind of zone)", z.Label))
		}
	}
	if err := m.Tree.Skipped(); err != nil {
		m.odd = append(m.odd, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// HasDRAM reports whether memory counts by itself, or may.
func (m *Machine) HasDRAM() bool { return len(m.Memories)+len(m.odd) > 0 }

// addSocket adds one package; a package without a limiter excludes the rung.
func (m *Machine) addSocket(z *rapl.Zone, enforce bool) {
	s := &Package{Zone: z, Meter: rapl.NewMeter(z)}
	m.Packages, m.meters = append(m.Packages, s), append(m.meters, s.Meter)
	if z.EnergyOnly() {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungMissing, z.Label+" has energy counters but no limits, which is normal on AMD"
		return
	}
	if !enforce {
		return
	}
	var err error
	if s.Limiter, err = z.Limiter(); err != nil {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungRefused, err.Error()
		return
	}
	if s.Limiter.Lock() == rapl.Locked {
		m.RAPLInfo.State, m.RAPLInfo.Text = capping.RungLocked, z.Label+" is locked by firmware until the next reboot"
	}
}

// weighRAPL takes the rung away where no package can be limited below its highest limit,
// and says which ones cannot where some can.
func (m *Machine) weighRAPL() {
	var fixed []string
	for _, s := range m.Packages {
		if c, err := s.Zone.Constraint(rapl.LongTerm); err == nil && !c.Travels() {
			fixed = append(fixed, fmt.Sprintf("the lowest limit of %s is its highest, %v", s.Zone.Label, c.PowerMin))
		}
	}
	if m.RAPLInfo.State != capping.RungReady || len(fixed) == 0 {
		return
	}
	m.RAPLInfo.Text = strings.Join(fixed, ", ")
	if len(fixed) == len(m.Packages) {
		m.RAPLInfo.State = capping.RungFixed
	}
}

// PackageLeast is the lowest limit of all packages together, as far as they say.
func (m *Machine) PackageLeast() (sum units.Power) {
	for _, s := range m.Packages {
		sum += s.least()
	}
	return sum
}

// least is the lowest long-term limit that the package takes; 0: it does not say.
func (s *Package) least() units.Power {
	c, err := s.Zone.Constraint(rapl.LongTerm)
	if err != nil {
		return 0
	}
	return c.PowerMin
}

// Capable reports whether some rung holds a cap.
func (m *Machine) Capable() bool { return m.Ladder.Use != capping.RungNone }

// OnRAPL reports whether package limits hold the cap.
func (m *Machine) OnRAPL() bool { return m.Ladder.Use == capping.RungRAPL }

// Limited are the packages whose limits hold the cap; none on another rung.
func (m *Machine) Limited() []*Package {
	if !m.OnRAPL() {
		return nil
	}
	return m.Packages
}

// Controls are all files that may be written, in the order of putting back.
func (m *Machine) Controls() []originals.Control {
	if m.Ladder.Use == capping.RungFreq {
		return m.Freq.Controls()
	}
	var all []originals.Control
	for _, s := range m.Limited() {
		for _, c := range s.Limiter.Controls() {
			k, what := ControlKind(s.Limiter, c.Path())
			all = append(all, originals.FileControl(c, s.Zone.Label+" "+what, k))
		}
	}
	return all
}

// ControlKind returns what a file of a package's limits holds, and what it is called.
func ControlKind(l *rapl.Limiter, path string) (originals.Kind, string) {
	switch {
	case strings.HasSuffix(path, "/enabled"):
		return originals.Switch, "limits switch"
	case path == l.ClampPath():
		return originals.Switch, "clamp switch"
	case path == l.PowerPath(rapl.LongTerm):
		return originals.Power, rapl.LongTerm + " limit"
	case path == l.PowerPath(rapl.ShortTerm):
		return originals.Power, rapl.ShortTerm + " limit"
	case l.WindowPath(rapl.LongTerm) == path:
		return originals.Window, rapl.LongTerm + " window"
	}
	return originals.Window, rapl.ShortTerm + " window"
}

// PackageMax is the highest limit of all packages together, 0 when one does not say.
func (m *Machine) PackageMax() units.Power {
	var sum units.Power
	for _, s := range m.Packages {
		top, ok := s.max()
		if !ok {
			return 0
		}
		sum += top
	}
	return sum
}

// Found tells the machine which limits an earlier powerd found: what a package held then, it
// takes again, whatever design power it states and whatever stands there now.
func (m *Machine) Found(j *originals.Journal) {
	if j == nil {
		return
	}
	for _, s := range m.Packages {
		for _, c := range j.Controls {
			if c.Kind == originals.Power && c.Label == s.Zone.Label+" "+rapl.LongTerm+" limit" && units.Power(c.Original) <= rapl.LimitMax {
				s.found = units.Power(c.Original)
			}
		}
	}
}

// max is the highest long-term limit that the package takes: never less than what stood there.
func (s *Package) max() (units.Power, bool) {
	c, err := s.Zone.Constraint(rapl.LongTerm)
	if err != nil || c.PowerMax <= 0 {
		return 0, false
	}
	return max(c.PowerMax, c.Found, s.found), true
}

// smoothing is the time constant of a socket's power for sharing.
const smoothing = time.Second

// Look reads every counter. The result is the mean power since the look before;
// it is unknown when any package's is.
//
//headroom:control
func (m *Machine) Look(now lease.Instant) capping.Sample {
	in := capping.Sample{Elapsed: now.Boot - m.LookedAt}
	if m.LookedAt == 0 {
		in.Elapsed = 0
	}
	m.LookedAt = now.Boot
	moment := rapl.Moment{Boot: now.Boot, Awake: now.Awake}
	in.Package.Known = slices.ContainsFunc(m.Packages, func(s *Package) bool { return !s.Zone.Gone() })
	for i, s := range m.Packages {
		if s.Zone.Gone() {
			s.Power = capping.Reading{}
			continue // unplugged: it draws nothing
		}
		s.Power = drawn(s.Meter, moment, &s.still)
		if !m.mirrors.Counts(i) {
			continue // its watts are counted with the other die's
		}
		in.Package.Power += s.Power.Power
		in.Package.Known = in.Package.Known && s.Power.Known
		if s.Power.Known {
			part := min(1, in.Elapsed.Seconds()/smoothing.Seconds())
			s.smooth += units.Power(float64(s.Power.Power-s.smooth) * part)
		}
	}
	if len(m.meters) > 1 {
		m.mirrors.NoteMeters(m.meters)
	}
	in.DRAM.Known = len(m.Memories) > 0 && len(m.odd) == 0
	for _, d := range m.Memories {
		d.power = drawn(d.meter, moment, &d.still)
		in.DRAM.Power += d.power.Power
		in.DRAM.Known = in.DRAM.Known && d.power.Known
	}
	return in
}

// drawn is the power that one look shows. A counter that stands still shows none:
// whatever runs draws something, so 0 W would be made up. When it moves again, what
// it shows is of the whole time.
func drawn(m *rapl.Meter, at rapl.Moment, still *time.Duration) capping.Reading {
	r, _ := m.LookAt(at) // an error is an unknown reading; health names it
	if r.Known && r.Energy == 0 {
		*still += r.Elapsed
		return capping.Reading{}
	}
	r.Elapsed, *still = r.Elapsed+*still, 0
	p, known := r.Power()
	return capping.Reading{Power: p, Known: known}
}

// stillMost is for how long a counter may stand still before that is no moment any
// more, but a counter that is frozen.
const stillMost = time.Second

// Halting reports whether nothing is wrong but a counter that stands still for a moment.
func (m *Machine) Halting() bool {
	halted := false
	check := func(p capping.Reading, still time.Duration) bool {
		halted = halted || still > 0
		return p.Known || still > 0 && still <= stillMost
	}
	for _, s := range m.Packages {
		if !s.Zone.Gone() && !check(s.Power, s.still) {
			return false
		}
	}
	for _, d := range m.Memories {
		if !check(d.power, d.still) {
			return false
		}
	}
	return halted
}

// Unmeasured names what takes part in the node's power and cannot be read.
//
//headroom:control
func (m *Machine) Unmeasured() []string {
	names := slices.Clone(m.odd)
	for _, s := range m.Packages {
		if !s.Power.Known && !s.Zone.Gone() {
			names = append(names, s.Zone.Label)
		}
	}
	for _, d := range m.Memories {
		if !d.power.Known {
			names = append(names, d.zone.Label)
		}
	}
	return names
}

// Wanted is the long-term limit that was decided on.
func (s *Package) Wanted() units.Power { return s.Requested.Long }

// Held is the long-term limit that was written.
func (s *Package) Held() units.Power { return s.Written.Long }

// Share splits what the law wants between the packages, which stand at limit now.
//
//headroom:control
func (m *Machine) Share(act capping.Actions, parts []capping.Socket, limit func(*Package) units.Power) []capping.Socket {
	parts = parts[:0]
	for _, s := range m.Packages {
		top, _ := s.max()
		parts = append(parts, capping.Socket{
			Power: capping.Reading{Power: s.smooth, Known: s.smooth > 0}, Limit: limit(s), Min: s.least(), Max: top,
		})
	}
	for i, long := range capping.Share(act.Long, parts) {
		above := act.Short.Watts() / act.Long.Watts()
		least := max(capping.Grain, m.Packages[i].least())
		m.Packages[i].Requested = Limits{Long: long, Short: max(least, units.FromWatts(long.Watts()*above)/capping.Grain*capping.Grain)}
	}
	return parts
}

// ReadBack reads what the hardware holds now.
//
//headroom:control
func (m *Machine) ReadBack() {
	if m.Ladder.Use == capping.RungFreq || m.Freq != nil && m.Freq.Used {
		m.Freq.ReadBack()
	}
	for _, s := range m.Packages {
		if s.Zone.Gone() {
			s.Readable, s.Drifted, s.Off = false, false, false
			continue
		}
		if s.Limiter == nil || !m.OnRAPL() {
			s.glance()
			continue
		}
		long, err := s.Limiter.Power(rapl.LongTerm)
		short := units.Power(0)
		if err == nil && s.Limiter.Has(rapl.ShortTerm) {
			short, err = s.Limiter.Power(rapl.ShortTerm)
		}
		s.Effective, s.Readable = Limits{long, short}, err == nil
		s.Drifted = s.Readable && s.Written.Long > 0 && (!rapl.Same(long, s.Written.Long) ||
			s.Limiter.Has(rapl.ShortTerm) && !rapl.Same(short, s.Written.Short))
		if s.Limiter.SwitchPath() != "" && s.Written.Long > 0 {
			on, errOn := s.Zone.Enabled()
			s.Off = errOn == nil && !on
			s.Readable = s.Readable && errOn == nil
		}
	}
}

// glance reads the limit of a package that is only observed.
func (s *Package) glance() {
	c, err := s.Zone.Constraint(rapl.LongTerm)
	if err == nil {
		s.Effective.Long, err = c.Power()
	}
	s.Readable = err == nil
}

// Off reports whether the limits of a package are switched off, so that nothing bounds it.
func (m *Machine) Off() bool {
	return slices.ContainsFunc(m.Limited(), func(s *Package) bool { return s.Off })
}

// Excess is how far the limits that read back stand above those written, at
// package level, and false when one cannot be read or was never written.
//
//headroom:control
func (m *Machine) Excess() (units.Power, bool) {
	var sum units.Power
	for _, s := range m.Limited() {
		if s.Zone.Gone() {
			continue
		}
		if !s.Readable || s.Written.Long == 0 {
			return 0, false
		}
		if over := s.Effective.Long - s.Written.Long; over > rapl.Rounding {
			sum += over
		}
	}
	return sum, len(m.Packages) > 0
}

// EffectiveLimit is the long-term limit of all packages together, as it reads back.
func (m *Machine) EffectiveLimit() (sum units.Power) {
	for _, s := range m.Limited() {
		sum += s.Effective.Long
	}
	return sum
}

// Write brings one package to its limits and verifies them. note is called with
// each value before it is written; when it fails, nothing is written.
//
//headroom:control
func (s *Package) Write(to Limits, note func(path string, value, before int64) error) error {
	if s.Off {
		if _, err := s.Prepare(note); err != nil {
			return err
		}
		s.Off = false
	}
	order := []string{rapl.LongTerm, rapl.ShortTerm}
	if to.Long > s.Effective.Long { // the short limit never stands below the long one for long
		order = []string{rapl.ShortTerm, rapl.LongTerm}
	}
	var errs []error
	for _, name := range order {
		want, got, last := &to.Long, &s.Effective.Long, &s.Written.Long
		if name == rapl.ShortTerm {
			if !s.Limiter.Has(name) {
				s.Written.Short = to.Short
				continue
			}
			want, got, last = &to.Short, &s.Effective.Short, &s.Written.Short
		}
		// A step of one grain is a step too: only what was written before and still reads back needs no writing.
		if *want == *last && rapl.Same(*want, *got) && s.Readable {
			continue
		}
		if err := note(s.Limiter.PowerPath(name), int64(*want), int64(*got)); err != nil {
			errs = append(errs, err)
			continue // what was written last stands: a value that nobody wrote would look like another program's drift
		}
		*last = *want
		read, err := s.Limiter.SetPower(name, *want)
		if read > 0 {
			*got = read
		} else { // not read: what stands there is unknown until it is, never 0 W
			s.Readable = false
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Prepare sets windows and switches the limits on: once, after the limits have
// been written. A window that does not take only slows the settling.
//
//headroom:control
func (s *Package) Prepare(note func(path string, value, before int64) error) (windows, err error) {
	for name, window := range map[string]time.Duration{rapl.LongTerm: capping.LongWindow, rapl.ShortTerm: capping.ShortWindow} {
		path := s.Limiter.WindowPath(name)
		if path == "" {
			continue
		}
		before, errRead := s.Limiter.Window(name)
		if errRead == nil {
			errRead = note(path, window.Microseconds(), before.Microseconds())
		}
		if errRead == nil {
			_, errRead = s.Limiter.SetWindow(name, window)
		}
		windows = errors.Join(windows, errRead)
	}
	return windows, s.Limiter.SwitchOn(note)
}

// Forget is called after the originals were restored: none of the present values is
// powerd's.
func (m *Machine) Forget() {
	for _, s := range m.Packages {
		s.Requested, s.Written, s.Drifted, s.Off = Limits{}, Limits{}, false, false
	}
	if m.Freq != nil {
		m.Freq.Used = false
		m.Hold()
		clear(m.Freq.requested)
		clear(m.Freq.Written)
	}
}

// Close closes the descriptors; limits stay as they are.
func (m *Machine) Close() error {
	var errs []error
	for _, s := range m.Packages {
		if s.Limiter != nil {
			errs = append(errs, s.Limiter.Close())
		}
	}
	if m.Freq != nil {
		errs = append(errs, m.Freq.close())
	}
	if m.Tree != nil {
		errs = append(errs, m.Tree.Close())
	}
	return errors.Join(errs...)
}
