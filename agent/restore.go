package agent

import (
	"errors"
	"fmt"
	"os"

	"headroom/rapl/sysfs"
)

// outcome is what putting back came to, one line a control.
type outcome struct {
	restored []string
	kept     []string
	// failed counts the controls that should have gone back and did not: the
	// journal has to stay.
	failed int
}

// putBack writes every original that powerd replaced. It goes on past controls
// that fail, leaves alone what another program has written since, and never
// writes 0 W.
func putBack(root *os.Root, j *journal, t *trail) outcome {
	var o outcome
	for _, c := range j.Controls {
		line, kept, err := putBackOne(root, c, t)
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
	return o
}

func putBackOne(root *os.Root, c saved, t *trail) (line string, kept bool, err error) {
	file, err := sysfs.OpenControl(root, c.Path)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	now, err := file.Read()
	if err != nil {
		return "", false, err
	}
	was := c.Kind.text(c.Original)
	switch {
	case now == c.Original:
		return was + " (already)", false, nil
	case !t.ours(c, now):
		return fmt.Sprintf("holds %s, which powerd did not write; left alone (it was %s)", c.Kind.text(now), was), true, nil
	case c.Kind == powerControl && c.Original == 0:
		return "was 0 W, which is never written; holds " + c.Kind.text(now), true, nil
	}
	if err := t.note(c.Path, c.Original, now); err != nil {
		return "", false, err
	}
	got, err := file.Write(c.Original)
	if err == nil && !c.Kind.same(got, c.Original) {
		err = fmt.Errorf("wrote %s, reads %s", was, c.Kind.text(got))
	}
	return was, false, err
}
