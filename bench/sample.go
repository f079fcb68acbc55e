package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"headroom/emulator"
	"headroom/rapl"
)

// sampleGoal is the most that a sample may cost against its bare preads.
const sampleGoal = 1.2

// sampler takes one sample of all counters in two ways: as powerd does, and bare.
type sampler struct {
	meters []*rapl.Meter
	fds    []int
	now    time.Duration
	buf    [64]byte
	close  func() error
}

// newSampler boots an emulated node for its file tree.
func newSampler(dir string) (*sampler, error) {
	n, err := emulator.NewNode(dir, emulator.DefaultSpec())
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(n.RootDir())
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	tree, err := rapl.Open(root)
	if err != nil {
		return nil, errors.Join(err, root.Close(), n.Close())
	}
	s := &sampler{}
	s.close = func() error {
		for _, fd := range s.fds {
			_ = unix.Close(fd)
		}
		return errors.Join(tree.Close(), root.Close(), n.Close())
	}
	for _, z := range tree.Zones() {
		path := filepath.Join(n.RootDir(), "sys/class/powercap", z.Control, "energy_uj")
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bench: open %s: %w", path, err), s.close())
		}
		s.fds, s.meters = append(s.fds, fd), append(s.meters, rapl.NewMeter(z))
	}
	return s, nil
}

// ours reads every counter as powerd does: read, parse, difference, wrap.
func (s *sampler) ours() error {
	s.now += lawPeriod
	for _, m := range s.meters {
		if _, err := m.Look(s.now); err != nil {
			return err
		}
	}
	return nil
}

// bare is the system calls alone.
func (s *sampler) bare() error {
	for _, fd := range s.fds {
		if _, err := unix.Pread(fd, s.buf[:], 0); err != nil {
			return err
		}
	}
	return nil
}

// timed is the time of one of many calls of f.
func timed(calls int, f func() error) (time.Duration, error) {
	began := time.Now()
	for range calls {
		if err := f(); err != nil {
			return 0, err
		}
	}
	return time.Since(began) / time.Duration(calls), nil
}

func measureSample(ctx context.Context, l *lab) (rows []Row, err error) {
	s, err := newSampler(filepath.Join(l.dir, "sample"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	const calls = 500
	var ours, bare []time.Duration
	for range l.pick(400, 60) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a, errA := timed(calls, s.ours)
		b, errB := timed(calls, s.bare)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		ours, bare = append(ours, a), append(bare, b)
	}
	a, b := spreadOf(ours).median(), spreadOf(bare).median()
	r := ratio(float64(a), float64(b))
	return []Row{{
		Figure: "sample", What: fmt.Sprintf("one sample of %d zones, on plain files", len(s.meters)), Goal: "<= 1.2 x its bare preads",
		Measured: shown(a), Peer: "bare preads: " + shown(b), Ratio: r, Verdict: verdict(r != nil && *r <= sampleGoal),
		Values: map[string]float64{"sample_s": a.Seconds(), "peer_s": b.Seconds(), "zones": float64(len(s.meters))},
	}}, nil
}
