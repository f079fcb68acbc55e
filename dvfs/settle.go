package dvfs

import (
	"errors"
	"slices"
	"time"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// Since Linux 5.5 a write to scaling_max_freq or scaling_min_freq takes effect in a worker
// (kernel: drivers/base/power/qos.c, cpufreq.c refresh_frequency_limits), so an immediate
// read may return the old value.
const (
	// SettleMost bounds the wait for the kernel, for any number of writes.
	SettleMost = 40 * time.Millisecond
	settleStep = 2 * time.Millisecond
)

// Settle reads a value that was just written and read back as got, until done reports that
// it is in effect or patience is used up. It returns the last value read, and subtracts
// the wait from patience.
func Settle(control *sysfs.Control, got units.Freq, done func(units.Freq) bool, patience *time.Duration) (units.Freq, error) {
	for !done(got) && *patience > 0 {
		time.Sleep(settleStep)
		*patience -= settleStep
		v, err := control.Read()
		if err != nil {
			return 0, offline(err)
		}
		got = units.Freq(v)
	}
	return got, nil
}

// underWay is a ceiling that was written and may not be in effect yet.
type underWay struct {
	ceiling       *Ceiling
	want, got     units.Freq
	err, errFloor error
}

// begin writes a ceiling; settle and end follow.
func (c *Ceiling) begin(f units.Freq) *underWay {
	w := &underWay{ceiling: c, want: c.policy.Nearest(f)}
	w.errFloor = c.makeRoom(w.want)
	w.got, w.err = c.write(c.control, w.want)
	return w
}

// late reports whether an older, higher ceiling is still in effect.
func (w *underWay) late() bool { return w.err == nil && w.got > w.want }

// look reads the value in effect.
func (w *underWay) look() {
	v, err := w.ceiling.control.Read()
	w.got, w.err = units.Freq(v), offline(err)
}

// settle waits for all of them together; their workers run in parallel.
func settle(all []*underWay) {
	for waited := time.Duration(0); waited < SettleMost && slices.ContainsFunc(all, (*underWay).late); waited += settleStep {
		time.Sleep(settleStep)
		for _, w := range all {
			if w.late() {
				w.look()
			}
		}
	}
}

// end returns the outcome.
func (w *underWay) end() (units.Freq, error) {
	if w.err == nil && w.got > w.want {
		w.err = ErrNotTaken
	}
	if w.err == nil {
		// The ceiling is in effect, so the floor does not matter. A raised ceiling may
		// read back lower for a moment.
		w.ceiling.giveBack(w.want)
		return w.got, nil
	}
	err := errors.Join(w.err, w.errFloor)
	return w.got, &WriteError{Policy: w.ceiling.policy.Name, Want: w.want, Got: w.got, Err: err}
}
