package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/capping"
	"headroom/systemd"
)

const (
	// rivalsEvery is the time between two searches for other writers.
	rivalsEvery = time.Minute
)

// rivals are the other writers of this node's controls. They are found by name
// and by what they write.
type rivals struct {
	units []string // active, as systemd says
	words string   // the same with what they write
	asked bool     // systemd could be asked
}

// rivalsTold takes what systemd says is active.
func (n *node) rivalsTold(found []systemd.Unit, err error) {
	r := &n.rivals
	r.asked = err == nil
	if err != nil {
		n.log.Debug("other writers cannot be looked for", slog.Any("error", err))
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
	n.health.Warn(len(names) > 0, "rival",
		fmt.Sprintf("active here and known to write the same controls: %s", r.words),
		"stop and mask it; rivals: "+n.cfg.Rivals+" says what powerd does about its writes")
}

// mayWriteOver says whether a value that another program has changed is written
// over now; last is when that was done last, 0 for never.
func (n *node) mayWriteOver(now, last time.Duration) bool {
	if n.caps.stepped {
		return true // a new cap is always written, and cuts never wait
	}
	return n.cfg.Fights(now, last)
}

// driftWords are what is said about a control that another program changed.
func (r *rivals) driftWords(policy, what string) (text, hint string) {
	who := "another program may be writing"
	if r.words != "" {
		who = "another program writes, likely " + r.words
	}
	hint = "find the other writer (thermald, tuned, an EAR or GEOPM daemon) and stop it; "
	switch policy {
	case config.RivalsFight:
		hint += "powerd writes its own limit again at once"
	case config.RivalsYield:
		hint += "rivals is yield: its value stays, and the node is charged for what reads back"
	default:
		hint += "powerd writes its own limit again, at most once in 10 s"
	}
	return what + "; " + who, hint
}

// noteDrift keeps the highest excess until a heartbeat has told it.
func (n *node) noteDrift(now time.Duration) {
	if n.mode != holding {
		return
	}
	excess, ok := n.excessWall()
	n.lease.Strayed(excess, ok)
	for _, s := range n.machine.Limited() {
		switch {
		case s.Off:
			n.drift(now, s.Zone.Label, fmt.Sprintf("the limits of %s are switched off", s.Zone.Label))
		case s.Drifted:
			n.drift(now, s.Zone.Label, fmt.Sprintf("%s holds %v, %v was written", s.Zone.Label, s.Effective.Long, s.Written.Long))
		}
	}
	if f := n.machine.Freq; f != nil && f.Used {
		names := f.Drifted()
		for _, policy := range names {
			n.drift(now, policy, fmt.Sprintf("the frequency ceiling of %s stands higher than it was written", strings.Join(names, ", ")))
		}
	}
	n.health.Warn(!ok, "limit-unread",
		"what the hardware holds cannot be read back: "+n.unread(),
		"the node reports that it does not know, and writes its limit again; see powerd zone list and powerd freq list")
	if n.driftAt == 0 || now-n.driftAt > driftShown {
		n.health.Clear("limit-drift")
	}
}

// watchFields looks once a second at what bounds a package beside the limits and
// their switch, which each turn looks at: the windows, and the clamp where that has
// a switch of its own.
func (n *node) watchFields(now time.Duration) {
	if n.mode != holding {
		return
	}
	for _, s := range n.machine.Limited() {
		if s.Zone.Gone() || s.Written.Long == 0 {
			continue
		}
		drifts, _ := s.Limiter.Drift() // each turn tells what cannot be read
		for _, d := range drifts {
			k, what := machine.ControlKind(s.Limiter, d.Path)
			if k == originals.Power || d.Path == s.Limiter.SwitchPath() || k.Same(originals.Value{Number: d.Reads}, originals.Value{Number: d.Written}) {
				continue
			}
			n.countDrift(now, s.Zone.Label, s.Zone.Label+" "+what, time.Second)
			n.sayDrift(now, fmt.Sprintf("%s %s holds %s, %s was written", s.Zone.Label, what, k.Words(originals.Value{Number: d.Reads}), k.Words(originals.Value{Number: d.Written})))
			if n.mayWriteOver(now, s.ResetAt) {
				s.ResetAt = now
				n.resetFields(s)
			}
		}
	}
}

// resetFields brings windows and switches back to what they are meant to be.
func (n *node) resetFields(s *machine.Package) {
	windows, err := s.Prepare(n.records.trail.Note)
	if err := errors.Join(windows, err); err != nil {
		n.countWrite(s.Zone.Label, err)
		n.log.Warn("windows and switches are not as they should be", slog.String("zone", s.Zone.Label), slog.Any("error", err))
	}
}

// unread names the limits that do not read back.
func (n *node) unread() string {
	var names []string
	for _, s := range n.machine.Limited() {
		if !s.Readable && !s.Zone.Gone() {
			names = append(names, s.Zone.Label)
		}
	}
	if n.machine.Ladder.Use == capping.RungFreq {
		for _, r := range n.machine.Freq.Report {
			if !r.Known {
				names = append(names, r.Policy)
			}
		}
	}
	if len(names) == 0 {
		return "nothing was written yet"
	}
	return strings.Join(names, ", ")
}

// drift says, and counts, that a control stands at another value than was written.
func (n *node) drift(now time.Duration, control, what string) {
	n.countDrift(now, control, control, period)
	n.sayDrift(now, what)
}

// sayDrift keeps the health item up.
func (n *node) sayDrift(now time.Duration, what string) {
	n.driftAt = now
	text, hint := n.rivals.driftWords(n.cfg.Rivals, what)
	n.health.Warn(true, "limit-drift", text, hint)
}
