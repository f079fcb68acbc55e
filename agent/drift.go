package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/capping"
	"headroom/lease"
	"headroom/systemd"
	"headroom/units"
)

// driftShown is the time for which a corrected drift stays visible.
const driftShown = 10 * time.Second

// driftWatch detects controls with another value than powerd wrote, and programs that may
// have written it. It belongs to the owner goroutine.
type driftWatch struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items

	machine *machine.Machine
	lease   *lease.Node
	records *records.Records
	tally   *tally

	rivals rivals
	at     time.Duration // last drift seen
}

// rivals are other programs that write this node's controls.
type rivals struct {
	units []string // active, according to systemd
	words string   // the same, with what they write
}

// rivalsFound handles the active units that systemd reports.
func (d *driftWatch) rivalsFound(found []systemd.Unit, err error) {
	r := &d.rivals
	if err != nil {
		d.log.Debug("scan for other writers failed", slog.Any("error", err))
		return
	}
	var names, words []string
	for _, u := range found {
		names = append(names, u.Name)
		if known, ok := systemd.RivalOf(u.Name); ok {
			words = append(words, fmt.Sprintf("%s (%s)", u.Name, known.Writes))
		}
	}
	slices.Sort(names)
	r.units, r.words = names, strings.Join(words, ", ")
	d.health.Warn(len(names) > 0, "rival",
		fmt.Sprintf("another program may write the same controls: %s", r.words),
		"stop and mask it; rivals: "+d.cfg.Rivals+" in powerd.yaml sets the reaction to its writes")
}

// words returns text and hint of a control that another program changed.
func (d *driftWatch) words(what string) (text, hint string) {
	who := "another program may be writing"
	if d.rivals.words != "" {
		who = "another program writes, likely " + d.rivals.words
	}
	hint = "find the other writer (thermald, tuned, an EAR or GEOPM daemon) and stop it; "
	switch d.cfg.Rivals {
	case config.RivalsFight:
		hint += "powerd writes its own limit again at once"
	case config.RivalsYield:
		hint += "rivals is yield: its value stays, and the node is charged for what reads back"
	default:
		hint += "powerd writes its own limit again, at most once in 10 s"
	}
	return what + "; " + who, hint
}

// look reports the drift of the controls that enforce the cap, and keeps the highest excess
// until a heartbeat has reported it. It is called while the node holds a cap.
func (d *driftWatch) look(now time.Duration, excess units.Power, known bool) {
	d.lease.Strayed(excess, known)
	for _, s := range d.machine.Limited() {
		switch {
		case s.Off:
			d.note(now, s.Zone.Label, fmt.Sprintf("the limits of %s are switched off", s.Zone.Label))
		case s.Drifted:
			d.note(now, s.Zone.Label, fmt.Sprintf("%s holds %v, %v was written", s.Zone.Label, s.Effective.Long, s.Written.Long))
		}
	}
	if f := d.machine.Freq; f != nil && f.Used {
		names := f.Drifted()
		for _, policy := range names {
			d.tally.drift(now, policy, policy, period)
		}
		if len(names) > 0 {
			d.say(now, fmt.Sprintf("the frequency ceiling of %s stands higher than it was written", health.Few(names)))
		}
	}
	d.health.Warn(!known, "limit-unread",
		"limit not readable: "+d.unread(),
		"the node reports its limit as unknown and writes it again; see powerd zone list and powerd freq list")
	if d.at == 0 || now-d.at > driftShown {
		d.health.Clear("limit-drift")
	}
}

// watchFields checks once a second the fields of a package that not every step checks: the
// windows, and the clamp if it has a switch of its own.
func (d *driftWatch) watchFields(now time.Duration, mayWriteOver func(now, last time.Duration) bool) {
	for _, s := range d.machine.Limited() {
		if s.Zone.Gone() || s.Written.Long == 0 {
			continue
		}
		drifts, _ := s.Limiter.Drift() // every step reports unreadable limits
		for _, f := range drifts {
			k, what := machine.ControlKind(s.Limiter, f.Path)
			if k == originals.Power || f.Path == s.Limiter.SwitchPath() || k.Same(originals.Value{Number: f.Reads}, originals.Value{Number: f.Written}) {
				continue
			}
			d.tally.drift(now, s.Zone.Label, s.Zone.Label+" "+what, time.Second)
			d.say(now, fmt.Sprintf("%s %s holds %s, %s was written", s.Zone.Label, what, k.Words(originals.Value{Number: f.Reads}), k.Words(originals.Value{Number: f.Written})))
			if mayWriteOver(now, s.ResetAt) {
				s.ResetAt = now
				d.resetFields(s)
			}
		}
	}
}

// resetFields rewrites windows and switches.
func (d *driftWatch) resetFields(s *machine.Package) {
	windows, err := s.Prepare(d.records.Trail.Note)
	if err := errors.Join(windows, err); err != nil {
		d.tally.writeFailed(s.Zone.Label, err)
		d.log.Warn("limit window or enable switch changed by another program", slog.String("zone", s.Zone.Label), slog.Any("error", err))
	}
}

// unread returns the names of unreadable limits.
func (d *driftWatch) unread() string {
	var names []string
	for _, s := range d.machine.Limited() {
		if !s.Readable && !s.Zone.Gone() {
			names = append(names, s.Zone.Label)
		}
	}
	if d.machine.Ladder.Use == capping.RungFreq {
		for _, r := range d.machine.Freq.Report {
			if !r.Known {
				names = append(names, r.Policy)
			}
		}
	}
	if len(names) == 0 {
		return "nothing was written yet"
	}
	return health.Few(names)
}

// note counts and reports a control with another value than powerd wrote.
func (d *driftWatch) note(now time.Duration, control, what string) {
	d.tally.drift(now, control, control, period)
	d.say(now, what)
}

// say updates the health item.
func (d *driftWatch) say(now time.Duration, what string) {
	d.at = now
	text, hint := d.words(what)
	d.health.Warn(true, "limit-drift", text, hint)
}
