package agent

import (
	"errors"
	"fmt"
	"os"
)

// outcome is what putting back came to, one line a control.
type outcome struct {
	restored []string
	kept     []string
	// failed counts the controls that should have gone back and did not: the
	// journal has to stay.
	failed int
}

// afar puts back a control that is no file. It answers like putBackOne.
type afar func(c saved, wrote value, ever bool) (line string, kept bool, err error)

// putBack writes every original that powerd replaced. It goes on past controls
// that fail, leaves alone what another program has written since, and never
// writes 0 W. Files go first and in the order of the journal; what is reached
// through another program, by far, comes last.
func putBack(root *os.Root, j *journal, t *trail, far afar) outcome {
	var o outcome
	for _, files := range []bool{true, false} {
		for _, c := range j.Controls {
			if c.Kind.file() != files {
				continue
			}
			line, kept, err := putBackOne(root, c, t, far)
			switch {
			case err != nil:
				o.kept = append(o.kept, fmt.Sprintf("%s: %v", c.Label, err))
				o.failed++
			case kept:
				o.kept = append(o.kept, c.Label+": "+line)
			default:
				o.restored = append(o.restored, c.Label+": "+line)
			}
		}
	}
	return o
}

func putBackOne(root *os.Root, c saved, t *trail, far afar) (line string, kept bool, err error) {
	if !c.Kind.file() {
		wrote, ever := t.wrote(c.Path)
		return far(c, wrote, ever)
	}
	now, err := c.read(root)
	if err != nil {
		return "", false, err
	}
	was := c.Kind.words(c.found())
	switch {
	case now == c.found():
		return was + " (already)", false, nil
	case !t.ours(c, now):
		return fmt.Sprintf("holds %s, which powerd did not write; left alone (it was %s)", c.Kind.words(now), was), true, nil
	case c.Kind == powerControl && c.Original == 0:
		return "was 0 W, which is never written; holds " + c.Kind.words(now), true, nil
	}
	if err := t.noteValue(c.Path, c.found(), now); err != nil {
		return "", false, err
	}
	got, err := c.write(root, c.found())
	if err == nil && !c.Kind.same(got, c.found()) {
		err = fmt.Errorf("wrote %s, reads %s", was, c.Kind.words(got))
	}
	return was, false, err
}

// noAfar is the hand of a command with the agent dead: it reaches files only.
func noAfar(c saved, _ value, ever bool) (string, bool, error) {
	switch {
	case !ever:
		return c.Kind.words(c.found()) + " (never written)", false, nil
	case c.Kind == bandwidthControl:
		return "", false, errors.New("only the agent puts a slice's bandwidth back: start powerd, or reboot (the bound ends with the boot); it was " +
			c.Kind.words(c.found()))
	}
	return "", false, errors.New("only the agent reaches the BMC: start powerd, or set the limit by hand; it was " + c.Kind.words(c.found()))
}
