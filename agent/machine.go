package agent

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
	"headroom/units"
)

// pair is the two limits of one package.
type pair struct{ long, short units.Power }

// socket is one package: its meter, and the hand on its limits.
type socket struct {
	zone    *rapl.Zone
	meter   *rapl.Meter
	limiter *rapl.Limiter // nil: it can only be read

	power     capping.Reading // mean since the look before
	still     time.Duration   // for how long the counter has not moved
	smooth    units.Power     // of the last second or so, for sharing
	requested pair            // what the law wants
	written   pair            // what was last written; 0: nothing yet
	effective pair            // what reads back
	readable  bool            // effective stands on a good reading
	drifted   bool            // effective differs from written
	off       bool            // the limits' switch stands at off: nothing bounds the package
	rewroteAt time.Duration   // when another writer's change was last written over
	resetAt   time.Duration   // the same of windows and clamp
}

// memory is one DRAM zone.
type memory struct {
	zone  *rapl.Zone
	meter *rapl.Meter
	power capping.Reading
	still time.Duration
}

// machine is the node's devices. It belongs to the owner goroutine.
type machine struct {
	root    *os.Root
	tree    *rapl.Tree // nil: no RAPL
	sockets []*socket
	drams   []*memory
	mirrors *rapl.Mirrors
	meters  []*rapl.Meter // of sockets, for mirrors
	freq    *freqRung     // nil: no cpufreq, or it may not be used
	tuning  *tuning       // nil: nothing is set beside the cap
	cpu     *cpuUse       // nil: not known

	raplInfo, freqInfo capping.RungInfo
	ladder             capping.Ladder
	strange            []string // packages that came after the start, and are not limited
	lost               []string // packages whose zones are gone while their processors run
	odd                []string // zones that may be memory: of no known kind, or not readable

	lookedAt time.Duration
}

// openMachine finds the node's devices. What is missing lowers the rung; only a
// tree that cannot be read at all is an error.
func openMachine(root *os.Root, cfg config.Config, open func(*os.Root) (*rapl.Tree, error), enforce bool) (*machine, error) {
	m := &machine{root: root, cpu: openCPUUse(root)}
	if err := m.openRAPL(cfg.Controls, open, enforce); err != nil {
		return nil, errors.Join(err, m.close())
	}
	m.openFreq(cfg, enforce)
	m.openTuning(cfg)
	m.choose()
	return m, nil
}

// choose decides the rung by what is known of each.
func (m *machine) choose(more ...capping.RungInfo) {
	m.ladder = capping.Choose(append([]capping.RungInfo{m.raplInfo, m.freqInfo}, more...))
}

// treeOpener is the way to package power that the configuration asks for, nil for none.
func treeOpener(source string) func(*os.Root) (*rapl.Tree, error) {
	switch source {
	case config.SourceOff:
		return nil
	case config.SourceMSR:
		return msr.Open
	}
	return rapl.Open
}

// openRAPL finds packages and memory, and the hands on the packages' limits.
func (m *machine) openRAPL(controls config.Controls, open func(*os.Root) (*rapl.Tree, error), enforce bool) error {
	m.raplInfo = capping.RungInfo{Rung: capping.RungRAPL, State: capping.RungMissing}
	if open == nil {
		m.raplInfo.State, m.raplInfo.Text = capping.RungOff, "rapl.source is off"
		return nil
	}
	tree, err := open(m.root)
	switch {
	case errors.Is(err, rapl.ErrNoTree) || errors.Is(err, rapl.ErrNoZone):
		m.raplInfo.Text = err.Error()
		return nil
	case err != nil:
		return err
	}
	m.tree = tree
	m.raplInfo.State = capping.RungReady
	for _, z := range tree.OfKind(rapl.Package) {
		m.addSocket(z, enforce && controls.Denied(config.PackageNames(z)) == "")
	}
	if why := controls.DeniedRAPL(tree.OfKind(rapl.Package)); why != "" && m.raplInfo.State != capping.RungMissing {
		m.raplInfo.State, m.raplInfo.Text = capping.RungOff, why
	}
	if len(m.sockets) == 0 {
		m.raplInfo.State, m.raplInfo.Text = capping.RungMissing, "no package zone"
	}
	m.mirrors = rapl.NewMirrors(tree.OfKind(rapl.Package))
	for _, z := range tree.OfKind(rapl.DRAM) {
		m.drams = append(m.drams, &memory{zone: z, meter: rapl.NewMeter(z)})
	}
	m.noteOdd()
	return nil
}

// noteOdd finds what may be memory and does not say so. Taking it for none would
// leave its watts out of every sum.
func (m *machine) noteOdd() {
	for _, z := range m.tree.Zones() {
		if z.Kind == rapl.Other {
			m.odd = append(m.odd, fmt.Sprintf("%q (a zone of no known kind)", z.Label))
		}
	}
	if err := m.tree.Skipped(); err != nil {
		m.odd = append(m.odd, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// hasDRAM says that memory counts by itself, or may.
func (m *machine) hasDRAM() bool { return len(m.drams)+len(m.odd) > 0 }

// addSocket takes one package in; one without a hand on its limits rules the rung out.
func (m *machine) addSocket(z *rapl.Zone, enforce bool) {
	s := &socket{zone: z, meter: rapl.NewMeter(z)}
	m.sockets, m.meters = append(m.sockets, s), append(m.meters, s.meter)
	if z.EnergyOnly() {
		m.raplInfo.State, m.raplInfo.Text = capping.RungMissing, z.Label+" counts energy and has no limits, which is normal on AMD"
		return
	}
	if !enforce {
		return
	}
	var err error
	if s.limiter, err = z.Limiter(); err != nil {
		m.raplInfo.State, m.raplInfo.Text = capping.RungRefused, err.Error()
		return
	}
	if s.limiter.Lock() == rapl.Locked {
		m.raplInfo.State, m.raplInfo.Text = capping.RungLocked, z.Label+" is locked by firmware until the next reboot"
	}
}

// capable says that some rung holds a cap.
func (m *machine) capable() bool { return m.ladder.Use != capping.RungNone }

// onRAPL says that package limits hold the cap.
func (m *machine) onRAPL() bool { return m.ladder.Use == capping.RungRAPL }

// limited are the packages whose limits hold the cap; none on another rung.
func (m *machine) limited() []*socket {
	if !m.onRAPL() {
		return nil
	}
	return m.sockets
}

// controls are all files that may be written, in the order of putting back.
func (m *machine) controls() []originals.Control {
	beside := readable(m.tuningControls())
	if m.ladder.Use == capping.RungFreq {
		return distinct(m.freq.controls(), beside)
	}
	var all []originals.Control
	for _, s := range m.limited() {
		for _, c := range s.limiter.Controls() {
			k, what := controlKind(s.limiter, c.Path())
			all = append(all, originals.FileControl(c, s.zone.Label+" "+what, k))
		}
	}
	return append(all, beside...)
}

// distinct is all with those of more that it lacks.
func distinct(all, more []originals.Control) []originals.Control {
	for _, c := range more {
		if !slices.ContainsFunc(all, func(a originals.Control) bool { return a.Path == c.Path }) {
			all = append(all, c)
		}
	}
	return all
}

func controlKind(l *rapl.Limiter, path string) (originals.Kind, string) {
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

// packageMax is the highest limit of all packages together, 0 when one does not say.
func (m *machine) packageMax() units.Power {
	var sum units.Power
	for _, s := range m.sockets {
		top, ok := s.max()
		if !ok {
			return 0
		}
		sum += top
	}
	return sum
}

// max is the highest long-term limit that the package takes.
func (s *socket) max() (units.Power, bool) {
	c, err := s.zone.Constraint(rapl.LongTerm)
	if err != nil || c.PowerMax <= 0 {
		return 0, false
	}
	return c.PowerMax, true
}

// smoothing is the time constant of a socket's power for sharing.
const smoothing = time.Second

// look reads every counter. The result is the mean power since the look before;
// it is unknown when any package's is.
func (m *machine) look(now lease.Instant) capping.Sample {
	in := capping.Sample{Elapsed: now.Boot - m.lookedAt}
	if m.lookedAt == 0 {
		in.Elapsed = 0
	}
	m.lookedAt = now.Boot
	moment := rapl.Moment{Boot: now.Boot, Awake: now.Awake}
	in.Package.Known = slices.ContainsFunc(m.sockets, func(s *socket) bool { return !s.zone.Gone() })
	for i, s := range m.sockets {
		if s.zone.Gone() {
			s.power = capping.Reading{}
			continue // unplugged: it draws nothing
		}
		s.power = drawn(s.meter, moment, &s.still)
		if !m.mirrors.Counts(i) {
			continue // its watts are counted with the other die's
		}
		in.Package.Power += s.power.Power
		in.Package.Known = in.Package.Known && s.power.Known
		if s.power.Known {
			part := min(1, in.Elapsed.Seconds()/smoothing.Seconds())
			s.smooth += units.Power(float64(s.power.Power-s.smooth) * part)
		}
	}
	if len(m.meters) > 1 {
		m.mirrors.NoteMeters(m.meters)
	}
	in.DRAM.Known = len(m.drams) > 0 && len(m.odd) == 0
	for _, d := range m.drams {
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

// halting says that nothing is wrong but a counter that stands still for a moment.
func (m *machine) halting() bool {
	halted := false
	check := func(p capping.Reading, still time.Duration) bool {
		halted = halted || still > 0
		return p.Known || still > 0 && still <= stillMost
	}
	for _, s := range m.sockets {
		if !s.zone.Gone() && !check(s.power, s.still) {
			return false
		}
	}
	for _, d := range m.drams {
		if !check(d.power, d.still) {
			return false
		}
	}
	return halted
}

// unmeasured names what takes part in the node's power and cannot be read.
func (m *machine) unmeasured() []string {
	names := slices.Clone(m.odd)
	for _, s := range m.sockets {
		if !s.power.Known && !s.zone.Gone() {
			names = append(names, s.zone.Label)
		}
	}
	for _, d := range m.drams {
		if !d.power.Known {
			names = append(names, d.zone.Label)
		}
	}
	return names
}

// held is the long-term limit that was written.
func (s *socket) held() units.Power { return s.written.long }

// share splits what the law wants between the packages, which stand at limit now.
func (m *machine) share(act capping.Actions, parts []capping.Socket, limit func(*socket) units.Power) []capping.Socket {
	parts = parts[:0]
	for _, s := range m.sockets {
		top, _ := s.max()
		parts = append(parts, capping.Socket{
			Power: capping.Reading{Power: s.smooth, Known: s.smooth > 0}, Limit: limit(s), Max: top,
		})
	}
	for i, long := range capping.Share(act.Long, parts) {
		above := act.Short.Watts() / act.Long.Watts()
		m.sockets[i].requested = pair{long: long, short: max(capping.Grain, units.FromWatts(long.Watts()*above)/capping.Grain*capping.Grain)}
	}
	return parts
}

// readBack reads what the hardware holds now.
func (m *machine) readBack() {
	if m.ladder.Use == capping.RungFreq || m.freq != nil && m.freq.used {
		m.freq.readBack()
	}
	for _, s := range m.sockets {
		if s.zone.Gone() {
			s.readable, s.drifted, s.off = false, false, false
			continue
		}
		if s.limiter == nil || !m.onRAPL() {
			s.glance()
			continue
		}
		long, err := s.limiter.Power(rapl.LongTerm)
		short := units.Power(0)
		if err == nil && s.limiter.Has(rapl.ShortTerm) {
			short, err = s.limiter.Power(rapl.ShortTerm)
		}
		s.effective, s.readable = pair{long, short}, err == nil
		s.drifted = s.readable && s.written.long > 0 && (!rapl.Same(long, s.written.long) ||
			s.limiter.Has(rapl.ShortTerm) && !rapl.Same(short, s.written.short))
		if s.limiter.SwitchPath() != "" && s.written.long > 0 {
			on, errOn := s.zone.Enabled()
			s.off = errOn == nil && !on
			s.readable = s.readable && errOn == nil
		}
	}
}

// glance reads the limit of a package that is only observed.
func (s *socket) glance() {
	c, err := s.zone.Constraint(rapl.LongTerm)
	if err == nil {
		s.effective.long, err = c.Power()
	}
	s.readable = err == nil
}

// off says that the limits of a package are switched off, so that nothing bounds it.
func (m *machine) off() bool {
	return slices.ContainsFunc(m.limited(), func(s *socket) bool { return s.off })
}

// excess is how far the limits that read back stand above those written, at
// package level, and false when one cannot be read or was never written.
func (m *machine) excess() (units.Power, bool) {
	var sum units.Power
	for _, s := range m.limited() {
		if s.zone.Gone() {
			continue
		}
		if !s.readable || s.written.long == 0 {
			return 0, false
		}
		if over := s.effective.long - s.written.long; over > rapl.Rounding {
			sum += over
		}
	}
	return sum, len(m.sockets) > 0
}

// write brings one package to its limits and verifies them. note is called with
// each value before it is written; when it fails, nothing is written.
func (s *socket) write(to pair, note func(path string, value, before int64) error) error {
	if s.off {
		if _, err := s.prepare(note); err != nil {
			return err
		}
		s.off = false
	}
	order := []string{rapl.LongTerm, rapl.ShortTerm}
	if to.long > s.effective.long { // the short limit never stands below the long one for long
		order = []string{rapl.ShortTerm, rapl.LongTerm}
	}
	var errs []error
	for _, name := range order {
		want, got, last := &to.long, &s.effective.long, &s.written.long
		if name == rapl.ShortTerm {
			if !s.limiter.Has(name) {
				s.written.short = to.short
				continue
			}
			want, got, last = &to.short, &s.effective.short, &s.written.short
		}
		// A step of one grain is a step too: only what was written before and still reads back needs no writing.
		if *want == *last && rapl.Same(*want, *got) && s.readable {
			continue
		}
		if err := note(s.limiter.PowerPath(name), int64(*want), int64(*got)); err != nil {
			errs = append(errs, err)
			continue // what was written last stands: a value that nobody wrote would look like another program's drift
		}
		*last = *want
		read, err := s.limiter.SetPower(name, *want)
		if read > 0 {
			*got = read
		} else { // not read: what stands there is unknown until it is, never 0 W
			s.readable = false
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// prepare sets windows and switches the limits on: once, after the limits have
// been written. A window that does not take only slows the settling.
func (s *socket) prepare(note func(path string, value, before int64) error) (windows, err error) {
	for name, window := range map[string]time.Duration{rapl.LongTerm: capping.LongWindow, rapl.ShortTerm: capping.ShortWindow} {
		path := s.limiter.WindowPath(name)
		if path == "" {
			continue
		}
		before, errRead := s.limiter.Window(name)
		if errRead == nil {
			errRead = note(path, window.Microseconds(), before.Microseconds())
		}
		if errRead == nil {
			_, errRead = s.limiter.SetWindow(name, window)
		}
		windows = errors.Join(windows, errRead)
	}
	return windows, s.limiter.SwitchOn(note)
}

// forget is for a node whose originals are back: nothing of what stands there is
// powerd's any more.
func (m *machine) forget() {
	for _, s := range m.sockets {
		s.requested, s.written, s.drifted, s.off = pair{}, pair{}, false, false
	}
	if m.freq != nil {
		m.freq.used = false
		clear(m.freq.requested)
		clear(m.freq.written)
	}
	m.tuning.forget()
}

// close gives the descriptors back; limits stay as they are.
func (m *machine) close() error {
	var errs []error
	for _, s := range m.sockets {
		if s.limiter != nil {
			errs = append(errs, s.limiter.Close())
		}
	}
	errs = append(errs, m.tuning.close())
	if m.freq != nil {
		errs = append(errs, m.freq.close())
	}
	if m.tree != nil {
		errs = append(errs, m.tree.Close())
	}
	return errors.Join(errs...)
}
