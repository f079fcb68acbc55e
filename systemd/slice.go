package systemd

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"headroom/internal/pause"
)

const (
	sliceSuffix = ".slice"
	rootSlice   = "-.slice"
	systemSlice = "system.slice"
	// settleSteps and settleStep bound waiting until the kernel holds what systemd
	// accepted: it writes the cgroup right after it has answered.
	settleSteps = 20
	settleStep  = 10 * time.Millisecond
)

// sliceForm is the name of a slice whose place in the tree its name tells.
var sliceForm = regexp.MustCompile(`^[A-Za-z0-9_.:\\]+(-[A-Za-z0-9_.:\\]+)*\.slice$`)

// Slice is one slice of low priority whose CPU bandwidth may be bounded.
type Slice struct {
	m    *Manager
	name string
}

// SliceState is what a slice holds at one moment.
type SliceState struct {
	// Asked is the bandwidth set in systemd.
	Asked Bandwidth
	// Held is what the kernel's cgroup holds; it counts only when HeldKnown.
	Held Bandwidth
	// HeldKnown is false where the cgroup cannot be read, or does not exist because
	// nothing runs in the slice.
	HeldKnown bool
	// Used is the CPU time used so far by all of the slice; it counts only when
	// UsedKnown, and begins again at 0 when the slice does.
	Used      time.Duration
	UsedKnown bool
}

// Effective returns the bandwidth in force, and whether the kernel confirms it:
// otherwise it is only the value set in systemd.
func (s SliceState) Effective() (b Bandwidth, proven bool) {
	if s.HeldKnown {
		return s.Held, true
	}
	return s.Asked, false
}

// Slices are the named slices that may be bounded. One that may not does not stop the
// others: its reason is a *RefusedError, or a failed call, in the joined error.
func (m *Manager) Slices(ctx context.Context, names []string) ([]*Slice, error) {
	var all []*Slice
	var errs []error
	for _, name := range names {
		s := &Slice{m: m, name: name}
		if err := s.check(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := s.Read(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// Name is the slice's name: "batch.slice".
func (s *Slice) Name() string { return s.name }

// Read is what the slice holds now. The first reading is the original: save its
// Asked durably before the first Set, and give it to PutBack.
func (s *Slice) Read(ctx context.Context) (SliceState, error) {
	var st SliceState
	err := s.m.ask(ctx, func(ctx context.Context, bus Bus) error {
		usec, err := bus.Quota(ctx, s.name)
		st.Asked = fromUsec(usec)
		return err
	})
	if err != nil {
		return SliceState{}, fmt.Errorf("systemd: read bandwidth of %s: %w", s.name, err)
	}
	s.m.readGroup(sliceGroup(s.name), &st)
	return st, nil
}

// Set bounds the slice's CPU bandwidth until the next boot and returns what it then
// holds. Bounds are rounded down to a BandwidthGrain; less than BandwidthMin is
// refused (ErrTooSmall), as is a slice that by now holds a service of Headroom's own
// (*RefusedError). ErrNotTaken: systemd took it, the kernel does not hold it.
func (s *Slice) Set(ctx context.Context, b Bandwidth) (SliceState, error) {
	if b < BandwidthMin {
		return SliceState{}, fmt.Errorf("systemd: bound %s to %v: %w", s.name, b, ErrTooSmall)
	}
	if b != Unlimited {
		b = b.grained()
	}
	if err := s.check(ctx); err != nil {
		return SliceState{}, err
	}
	return s.write(ctx, b)
}

// PutBack restores the slice's original bandwidth if it still holds what was
// last written: otherwise another writer's value stays (ErrChanged). last of 0 means
// that nothing was ever written.
func (s *Slice) PutBack(ctx context.Context, original, last Bandwidth) (SliceState, error) {
	st, err := s.Read(ctx)
	switch {
	case err != nil:
		return st, err
	case last == 0 || st.Asked.Same(original):
		return st, nil
	case !st.Asked.Same(last):
		return st, fmt.Errorf("systemd: put back %s: it holds %v, written was %v: %w", s.name, st.Asked, last, ErrChanged)
	}
	return s.write(ctx, original)
}

// Adopt returns a slice that an earlier process bounded, to be restored without the
// checks of Slices: an original must go back whatever the slice holds by now.
func (m *Manager) Adopt(name string) *Slice { return &Slice{m: m, name: name} }

// write sets the bandwidth and waits until the kernel holds it, within bounds.
func (s *Slice) write(ctx context.Context, b Bandwidth) (SliceState, error) {
	err := s.m.ask(ctx, func(ctx context.Context, bus Bus) error { return bus.SetQuota(ctx, s.name, b.usec()) })
	if err != nil {
		return SliceState{}, fmt.Errorf("systemd: bound %s to %v: %w", s.name, b, err)
	}
	var st SliceState
	for range settleSteps {
		if st, err = s.Read(ctx); err != nil {
			return st, err
		}
		if held, _ := st.Effective(); held.Same(b) && st.Asked.Same(b) {
			return st, nil
		}
		if !pause.For(ctx, settleStep) {
			break
		}
	}
	return st, fmt.Errorf("systemd: bound %s to %v: systemd means %v, %s: %w", s.name, b, st.Asked, st.kernel(), ErrNotTaken)
}

// kernel is what the kernel holds, in words.
func (s SliceState) kernel() string {
	if !s.HeldKnown {
		return "the cgroup cannot be read"
	}
	return "the cgroup holds " + s.Held.String()
}

// check refuses a slice whose bound would also slow down one of Headroom's own
// services. It is called again before each write: services start and move.
func (s *Slice) check(ctx context.Context) error {
	switch {
	case s.name == rootSlice || s.name == systemSlice:
		return s.refuse("it is where all services of the system are, Headroom's own among them")
	case !sliceForm.MatchString(s.name):
		return s.refuse("this is not the name of a slice (for example batch.slice)")
	}
	group := sliceGroup(s.name)
	if own := s.m.ownGroup(); within(own, group) {
		return s.refuse("this powerd runs in it (" + own + ")")
	}
	var holds string
	err := s.m.ask(ctx, func(ctx context.Context, bus Bus) error {
		// Stopped ones too: they come back while the bound stands.
		units, err := bus.Units(ctx, nil, s.m.own)
		if err != nil {
			return err
		}
		for _, u := range units {
			at, err := bus.Group(ctx, u.Name)
			if err != nil {
				return err
			}
			if within(at, group) {
				holds = u.Name
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("systemd: services of %s: %w", s.name, err)
	case holds != "":
		return s.refuse(holds + " runs in it, and Headroom's own services are never slowed down")
	}
	return nil
}

func (s *Slice) refuse(reason string) error { return &RefusedError{Slice: s.name, Reason: reason} }

// within reports whether a cgroup is another one or lies in it.
func within(group, outer string) bool {
	return group != "" && (group == outer || strings.HasPrefix(group, outer+"/"))
}
