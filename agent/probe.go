package agent

import (
	"errors"
	"fmt"
	"strings"

	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/rapl"
)

// ProbeFile of the state directory holds the limit that a probe is about to touch,
// and its value.
const ProbeFile = "probe.txt"

// probeGrains is by how many steps of the register a probe lowers a limit: one
// could be lost in rounding.
const probeGrains = 2

// Probe tests whether limits can be written, which a read cannot show: it lowers each
// zone's long-term limit by a fraction of a watt, reads it back and restores it. The
// original value is on disk before the write: if the probe is killed, Leftovers reports
// it. Zones without a limit, or whose limit was never set, are skipped.
//
// A *cli.Error means that nothing was written, because a powerd runs on stateDir or has
// left originals there. Any other error names the zones that did not accept their limit.
func Probe(stateDir string, zones []*rapl.Zone) error {
	held, err := statedir.Lock(stateDir)
	if err != nil {
		return notProbed(err.Error(), "stop powerd first; a running powerd verifies its own writes", err)
	}
	defer func() { _ = statedir.Unlock(held) }()
	d := statedir.OS{Dir: stateDir}
	if j, err := originals.Load(d); err != nil || j != nil {
		return notProbed("limits saved by an earlier powerd are not restored yet", "run powerd limit restore first", err)
	}
	return errors.Join(each.Of(zones, func(z *rapl.Zone) error { return probeOne(d, z) })...)
}

func notProbed(why, hint string, err error) error {
	return &cli.Error{Code: "not-probed", Exit: cli.ExitConflict, Message: "not probed: " + why, Hint: hint, Err: err}
}

func probeOne(d statedir.Disk, z *rapl.Zone) (err error) {
	l, err := z.Limiter()
	if errors.Is(err, rapl.ErrNoConstraint) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	before, err := l.Power(rapl.LongTerm)
	if err != nil {
		return err
	}
	if before <= probeGrains*capping.Grain {
		return nil // no limit was ever set: there is nothing to lower, and none to put back
	}
	if err := d.Durable(ProbeFile, fmt.Appendf(nil, "%s %d\n", l.PowerPath(rapl.LongTerm), int64(before))); err != nil {
		return err
	}
	lower := (before/capping.Grain - probeGrains) * capping.Grain // on the grid: hardware rounds to it
	got, errWrite := l.SetPower(rapl.LongTerm, lower)
	taken := errWrite == nil && got < before
	_, errBack := l.SetPower(rapl.LongTerm, before)
	if errBack == nil {
		errBack = d.Remove(ProbeFile)
	}
	if !taken {
		return fmt.Errorf("%s long_term: wrote %s, reads back %s (locked by firmware)", z.Label, cli.Watts(lower), cli.Watts(got))
	}
	return errBack
}

// Leftover is what earlier processes left to be done in a state directory.
type Leftover struct {
	// Journal says that originals are saved there which are not back yet.
	Journal bool
	// Controls is the number of those originals.
	Controls int
	// Probe is the note of a probe that was cut short: a control and the value
	// that it had; empty without one.
	Probe string
}

// Leftovers looks into a state directory, whether a powerd runs on it or not, and
// changes nothing. The error is that of the journal, ErrDamaged for one that
// cannot be trusted.
func Leftovers(stateDir string) (Leftover, error) {
	var l Leftover
	d := statedir.OS{Dir: stateDir}
	j, err := originals.Load(d)
	if err != nil {
		return l, err
	}
	if j != nil {
		l.Journal, l.Controls = true, len(j.Controls)
	}
	if note, err := d.Read(ProbeFile); err == nil {
		l.Probe = strings.TrimSpace(string(note))
	}
	return l, nil
}
