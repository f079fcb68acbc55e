package dvfs

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"headroom/internal/each"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Ceiling writes a policy's highest frequency. There is at most one for a policy. It is
// for one goroutine.
type Ceiling struct {
	policy  *Policy
	control *sysfs.Control
	floor   *sysfs.Control // nil: the floor cannot be written
	// found is the floor before a ceiling went below it, lowered the floor written
	// instead; both are 0 while the floor is unchanged.
	found, lowered units.Freq
}

// Ceiling opens the policy's ceiling for writing, without writing.
func (p *Policy) Ceiling() (*Ceiling, error) {
	c, err := sysfs.NewControl(p.path(maxFile), p.open)
	if err != nil {
		return nil, fmt.Errorf("dvfs: %s: %w", p.Name, offline(err))
	}
	floor, err := sysfs.NewControl(p.path("scaling_min_freq"), p.open)
	if err != nil {
		floor = nil // the ceiling is enough, except on old kernels with a raised floor
	}
	return &Ceiling{policy: p, control: c, floor: floor}, nil
}

// Leave excludes policies that a later Refresh adds if why returns a reason: Set fails for
// them with it, writes nothing, and goes on. Policies that are open stay.
func (c *Ceilings) Leave(why func(p *Policy) error) { c.leave = why }

func (c *Ceilings) open(p *Policy) (*Ceiling, error) {
	if c.leave != nil {
		if err := c.leave(p); err != nil {
			return nil, err
		}
	}
	opened, err := p.Ceiling()
	if err == nil {
		opened.hold(c.most)
	}
	return opened, err
}

// Hold keeps up to most ceilings open while they hold a cap, one descriptor each, those of
// policies that come later too; 0 ends that.
func (c *Ceilings) Hold(most int) {
	if c.most == most {
		return
	}
	c.most = most
	for _, r := range c.all {
		if r.ceiling != nil {
			r.ceiling.hold(most)
		}
	}
}

// knobs returns the controls that Set may write, in the order of a restore: the ceiling
// first, because kernels may refuse a floor above it.
func (c *Ceiling) knobs() []Knob {
	knobs := []Knob{{c.policy.Name + " frequency ceiling", c.control}}
	if c.floor != nil {
		knobs = append(knobs, Knob{c.policy.Name + " frequency floor", c.floor})
	}
	return knobs
}

// Set writes a ceiling, clamped to the range of the hardware and lowered to a frequency of
// the policy, and returns the value that reads back. The driver may round down; a ceiling
// that reads back higher than written is a *WriteError. A floor above the ceiling is
// lowered first, and restored when a later ceiling allows it.
func (c *Ceiling) Set(f units.Freq) (units.Freq, error) {
	w := c.begin(f)
	settle([]*underWay{w})
	return w.end()
}

// makeRoom lowers a floor above want. Kernels before 5.4 refuse a ceiling below the floor
// (EINVAL); later ones apply the ceiling.
func (c *Ceiling) makeRoom(want units.Freq) error {
	if c.floor == nil {
		return nil
	}
	now, err := c.floor.Read()
	if err != nil || units.Freq(now) <= want {
		return nil // if an unreadable floor matters, the write of the ceiling fails
	}
	if c.lowered == 0 || units.Freq(now) != c.lowered {
		c.found = units.Freq(now)
	}
	got, err := c.write(c.floor, want)
	if err != nil {
		return fmt.Errorf("lower the floor from %v: %w", units.Freq(now), err)
	}
	c.lowered = min(got, want) // the old floor may still read back: it is not waited for
	return nil
}

// giveBack restores a lowered floor, once the ceiling allows it and unless another program
// has changed it. A floor that is not accepted now is restored with the other saved
// controls.
func (c *Ceiling) giveBack(ceiling units.Freq) {
	if c.lowered == 0 || c.found > ceiling {
		return
	}
	if now, err := c.floor.Read(); err == nil && units.Freq(now) == c.lowered {
		if _, err := c.write(c.floor, c.found); err != nil {
			return
		}
	}
	c.found, c.lowered = 0, 0
}

// write writes a control of the policy. If the policy was removed and returned, it opens
// the file again, once.
func (c *Ceiling) write(to *sysfs.Control, f units.Freq) (units.Freq, error) {
	v, err := to.Write(int64(f))
	if errors.Is(err, unix.ENODEV) {
		if errOpen := to.Reopen(); errOpen != nil {
			return 0, offline(errors.Join(err, errOpen))
		}
		v, err = to.Write(int64(f))
	}
	return units.Freq(v), offline(err)
}

// now reads the ceiling in force, like CeilingNow but by its own descriptor.
func (c *Ceiling) now() (units.Freq, error) {
	v, err := c.control.Read()
	if errors.Is(err, unix.ENODEV) {
		if errOpen := c.control.Reopen(); errOpen != nil {
			return 0, offline(errors.Join(err, errOpen))
		}
		v, err = c.control.Read()
	}
	return units.Freq(v), offline(err)
}

// hold keeps the ceiling open, which is read and written all the time while it holds a cap,
// unless most are; 0 ends that. One that is not kept is opened for each use, as the floor
// always is.
func (c *Ceiling) hold(most int) {
	switch files, file := c.policy.files, c.policy.path(maxFile); {
	case files == nil:
	case most == 0:
		files.Drop(file)
	case files.Kept() < most:
		_ = files.Keep(file)
	}
}

// Close closes the descriptor. The ceiling does not change.
func (c *Ceiling) Close() error {
	c.hold(0)
	err := c.control.Close()
	if c.floor != nil {
		err = errors.Join(err, c.floor.Close())
	}
	return err
}

// State is the state of a policy relative to the last written ceiling.
type State string

// States of a ceiling.
const (
	// Unset: nothing was written.
	Unset State = "unset"
	// Held: the written value reads back.
	Held State = "held"
	// Lower: a lower ceiling reads back, set by firmware or another program.
	Lower State = "lower"
	// Drifted: a higher ceiling reads back. Another program wrote it, or it was
	// lost in suspend.
	Drifted State = "drifted"
	// Offline: the policy's CPUs are offline.
	Offline State = "offline"
	// Failed: the ceiling could not be written or read.
	Failed State = "failed"
)

// Result is one policy's part of a Report.
type Result struct {
	// Policy is the policy's directory name.
	Policy string
	// Requested is the wanted value, Written the value sent (0: none), and Effective
	// the value that reads back, 0 if unknown.
	Requested, Written, Effective units.Freq
	// Known reports whether Effective was read.
	Known bool
	// State compares Effective with Written.
	State State
	// Err is the reason for Offline and Failed: a *WriteError after a Set.
	Err error
}

// Report holds the ceilings of all policies, in their order.
type Report []Result

// Highest returns the highest ceiling that any policy may hold now. It is unknown if an
// online policy is unreadable. Offline policies do not count; if all are offline, the
// result is 0 and unknown.
func (r Report) Highest() (highest units.Freq, known bool) {
	online := 0
	for _, one := range r {
		if one.State == Offline {
			continue
		}
		if !one.Known {
			return 0, false
		}
		online++
		highest = max(highest, one.Effective)
	}
	return highest, online > 0
}

// Held reports whether every online policy holds at most the written value, and at least
// one is online.
func (r Report) Held() bool {
	online := false
	for _, one := range r {
		switch one.State {
		case Offline:
		case Held, Lower:
			online = true
		case Unset, Drifted, Failed:
			return false
		}
	}
	return online
}

// Drifted returns the names of the policies with another ceiling than written.
func (r Report) Drifted() []string {
	var names []string
	for _, one := range r {
		if one.State == Drifted {
			names = append(names, one.Policy)
		}
	}
	return names
}

// Err is the error of failed policies, as Several; an offline policy is no failure.
func (r Report) Err() error {
	var errs []error
	for _, one := range r {
		if one.State == Failed {
			errs = append(errs, one.Err)
		}
	}
	return Several(errs)
}

// reached is one policy with its Ceiling, as far as it could be opened.
type reached struct {
	policy    *Policy
	ceiling   *Ceiling // nil: not opened yet, with the reason in failed
	failed    error
	requested units.Freq
	written   units.Freq // as sent; 0: nothing yet
	stood     units.Freq // as read back right after that; 0: not accepted
	underWay  *underWay  // while a Set runs
}

// Ceilings writes the ceilings of all policies of a Set. It is for one goroutine.
type Ceilings struct {
	set   *Set
	all   []*reached
	leave func(p *Policy) error // nil: none is excluded
	most  int                   // of them are kept open
}

// Ceilings opens the ceilings of all policies. A ceiling that cannot be opened does not
// stop the others: Set tries it again and returns its error. Ceilings fails only if none
// can be opened.
func (s *Set) Ceilings() (*Ceilings, error) {
	c := &Ceilings{set: s}
	c.follow()
	var errs []error
	for _, r := range c.all {
		if r.ceiling != nil {
			return c, nil
		}
		errs = append(errs, r.failed)
	}
	return nil, Several(errs)
}

// follow keeps one entry for each policy of the set, which Refresh may have
// extended, and opens what could not be opened before.
func (c *Ceilings) follow() {
	known := make(map[*Policy]*reached, len(c.all))
	for _, r := range c.all {
		known[r.policy] = r
	}
	c.all = c.all[:0:0]
	for _, p := range c.set.policies {
		r := known[p]
		if r == nil {
			r = &reached{policy: p}
		}
		if r.ceiling == nil {
			r.ceiling, r.failed = c.open(p)
		}
		c.all = append(c.all, r)
	}
}

// Knobs returns the controls that Set may write, in the order of a restore, for the
// policies that are open now. After a Refresh that added policies, save their knobs before
// the next Set.
func (c *Ceilings) Knobs() []Knob {
	c.follow()
	var knobs []Knob
	for _, r := range c.all {
		if r.ceiling != nil {
			knobs = append(knobs, r.ceiling.knobs()...)
		}
	}
	return knobs
}

// SetEach writes the ceiling of want to every policy; a failing policy does not stop the
// others.
func (c *Ceilings) SetEach(want func(p *Policy) units.Freq) Report {
	c.follow()
	var all []*underWay
	for _, r := range c.all {
		r.begin(want(r.policy))
		if r.underWay != nil {
			all = append(all, r.underWay)
		}
	}
	settle(all)
	return each.List(c.all, (*reached).end)
}

// ReadBack reads every policy's ceiling without writing.
func (c *Ceilings) ReadBack() Report {
	if len(c.all) != len(c.set.policies) {
		c.follow() // not each time: of thousands of policies all may refuse
	}
	return each.List(c.all, (*reached).readBack)
}

func (r *reached) begin(f units.Freq) {
	r.requested, r.stood = f, 0
	if r.ceiling == nil {
		return
	}
	r.written = r.policy.Nearest(f)
	r.underWay = r.ceiling.begin(f)
}

func (r *reached) end() Result {
	if r.underWay == nil {
		return r.result(0, r.failed)
	}
	got, err := r.underWay.end()
	r.underWay = nil
	if err == nil {
		r.stood = got
	}
	return r.result(got, err)
}

func (r *reached) readBack() Result {
	if r.ceiling != nil {
		return r.result(r.ceiling.now())
	}
	got, err := r.policy.CeilingNow()
	if err == nil {
		// It is readable but not writable.
		res := r.result(got, r.failed)
		res.Known, res.Effective = true, got
		return res
	}
	return r.result(got, err)
}

func (r *reached) result(got units.Freq, err error) Result {
	res := Result{Policy: r.policy.Name, Requested: r.requested, Written: r.written, Effective: got, Known: got > 0, Err: err}
	switch {
	case errors.Is(err, ErrOffline):
		res.State, res.Known, res.Effective = Offline, false, 0
	case err != nil || got == 0:
		res.State = Failed
		if err == nil {
			res.Err = fmt.Errorf("dvfs: %s: the ceiling reads 0: %w", r.policy.Name, fs.ErrInvalid)
		}
	case r.written == 0:
		res.State = Unset
	case got > r.written:
		res.State = Drifted
	case r.stood != 0 && got < r.stood:
		res.State = Lower
	default:
		res.State = Held
	}
	return res
}

// Close closes the descriptors. The ceilings do not change.
func (c *Ceilings) Close() error {
	var errs []error
	for _, r := range c.all {
		if r.ceiling != nil {
			errs = append(errs, r.ceiling.Close())
		}
	}
	return errors.Join(errs...)
}
