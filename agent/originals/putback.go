package originals

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"headroom/dvfs"
	"headroom/rapl/sysfs"
)

// Outcome is what putting back came to, one line a control.
type Outcome struct {
	// Restored are the controls that hold their originals again.
	Restored []string
	// Kept are those that do not, with the reason.
	Kept []string
	// Failed counts the controls that should have gone back and did not: the
	// journal has to stay.
	Failed int
}

// alikeMost is how many lines that differ in numbers only stand for themselves.
const alikeMost = 8

// Alike are lines for an operator: of more than a few that differ in numbers only (of policies,
// CPUs, watts) the first, and how many more there are.
func Alike(lines []string) []string {
	like := map[string]int{}
	for _, line := range lines {
		like[Unnumbered(line)]++
	}
	var few []string
	for _, line := range lines {
		switch n := like[Unnumbered(line)]; {
		case n > alikeMost:
			few = append(few, fmt.Sprintf("%s (and %d more like it)", line, n-1))
			like[Unnumbered(line)] = 0
		case n > 0:
			few = append(few, line)
		}
	}
	return few
}

// Unnumbered is a text without its digits.
func Unnumbered(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// Remote puts back a control that is no file. It answers like putBackOne.
type Remote func(c Saved, wrote Value, ever bool) (line string, kept bool, err error)

// PutBack writes every original that powerd replaced. It goes on past controls
// that fail, leaves alone what another program has written since, and never
// writes 0 W. The turbo switch goes first, because ceilings read back lower while it is
// off, then the other files in the order of the journal; what is reached through
// another program, by far, comes last.
func PutBack(files *sysfs.Files, j *Journal, t *Trail, far Remote) Outcome {
	var o Outcome
	t.patient = recordsWait // no loop waits now, and what is not recorded is not put back
	defer func() { t.patient = 0 }()
	patience := SettleAll
	for _, its := range []func(Kind) bool{
		Kind.turbo,
		func(k Kind) bool { return k.file() && !k.turbo() },
		func(k Kind) bool { return !k.file() },
	} {
		for _, c := range j.Controls {
			if !its(c.Kind) {
				continue
			}
			line, kept, err := PutBackOne(files, c, t, far, &patience)
			switch {
			case err != nil:
				o.Kept = append(o.Kept, fmt.Sprintf("%s: %v", c.Label, err))
				o.Failed++
			case kept:
				o.Kept = append(o.Kept, c.Label+": "+line)
			default:
				o.Restored = append(o.Restored, c.Label+": "+line)
			}
		}
	}
	return o
}

// SettleAll bounds waiting for the kernel while many bounds of frequency go back, each
// of them for dvfs.SettleMost: where none of them takes, the node must not hang.
const SettleAll = time.Second

// recordsWait bounds waiting for the records while originals go back, all of them together:
// a stop must not hang on a disk that does.
const recordsWait = 2 * time.Second

// PutBackOne puts one original back; what it waits is taken off patience.
func PutBackOne(files *sysfs.Files, c Saved, t *Trail, far Remote, patience *time.Duration) (line string, kept bool, err error) {
	if !c.Kind.file() {
		wrote, ever := t.Wrote(c.Path)
		line, kept, err = far(c, wrote, ever)
		if r := t.last[c.Path]; kept && ever { // a write that was recorded may not have happened
			line, kept, err = far(c, Value{r.Before, r.BeforeText}, ever)
		}
		return line, kept, err
	}
	c = c.asFound(files) // turbo is back by now
	wait := min(*patience, dvfs.SettleMost)
	*patience -= wait
	defer func() { *patience += max(0, wait) }()
	now, err := c.standing(files, t, &wait)
	if err != nil {
		return "", false, err
	}
	was := c.Kind.Words(c.Found())
	switch {
	case now == c.Found():
		return was + " (already)", false, nil
	case !t.ours(c, now) && !c.byTurbo(files, t, now):
		return fmt.Sprintf("kept %s, which powerd did not write (original %s)", c.Kind.Words(now), was), true, nil
	case c.Kind == Power && c.Original == 0:
		return "original is 0 W, which is never written; current value " + c.Kind.Words(now), true, nil
	}
	if err := t.NoteValue(c.Path, c.Found(), now); err != nil {
		return "", false, err
	}
	got, err := c.write(files, c.Found(), &wait)
	switch {
	case err != nil || c.Kind.Same(got, c.Found()):
	case rangeMoved(files, c, got.Number):
		was = fmt.Sprintf("%s, the nearest value in the present range (original %s)", c.Kind.Words(got), was)
	case c.took(files, got, c.Found()):
	default:
		err = fmt.Errorf("wrote %s, reads %s", was, c.Kind.Words(got))
	}
	return was, false, err
}

// FilesOnly is the hand of a command with the agent dead: it reaches files only.
func FilesOnly(c Saved, _ Value, ever bool) (string, bool, error) {
	switch {
	case !ever:
		return c.Kind.Words(c.Found()) + " (never written)", false, nil
	case c.Kind == Bandwidth:
		return "", false, errors.New("only a running powerd restores the bandwidth of a slice: start powerd, or reboot (a reboot removes the limit); original value " +
			c.Kind.Words(c.Found()))
	}
	return "", false, errors.New("only a running powerd reaches the BMC: start powerd, or set the limit by hand; original value " + c.Kind.Words(c.Found()))
}
