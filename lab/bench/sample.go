package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"headroom/lab/emulator"
	"headroom/rapl"
)

// sampleBatch is how many samples one timing covers: one alone is near the clock's own cost.
const sampleBatch = 100

// sampler reads what powerd reads at each turn of its loop: the counters, and
// both limits back.
type sampler struct {
	meters []*rapl.Meter
	limits []*rapl.Constraint
}

func newSampler(t *rapl.Tree) (*sampler, error) {
	s := &sampler{}
	for _, z := range t.OfKind(rapl.Package) {
		s.meters = append(s.meters, rapl.NewMeter(z))
		for _, name := range []string{rapl.LongTerm, rapl.ShortTerm} {
			c, err := z.Constraint(name)
			if err != nil {
				return nil, err
			}
			s.limits = append(s.limits, c)
		}
	}
	for _, z := range t.OfKind(rapl.DRAM) {
		s.meters = append(s.meters, rapl.NewMeter(z))
	}
	return s, nil
}

func (s *sampler) look(now time.Duration) error {
	for _, m := range s.meters {
		if _, err := m.Look(now); err != nil {
			return err
		}
	}
	for _, c := range s.limits {
		if _, err := c.Power(); err != nil {
			return err
		}
	}
	return nil
}

// bare is the peer: one pread for each of the same files, the bytes thrown away.
type bare struct {
	files []*os.File
	fds   []int
	buf   [64]byte
}

func openBare(root string, t *rapl.Tree) (*bare, error) {
	b := &bare{}
	for _, z := range append(t.OfKind(rapl.Package), t.OfKind(rapl.DRAM)...) {
		names := []string{"energy_uj"}
		if z.Kind == rapl.Package {
			names = append(names, "constraint_0_power_limit_uw", "constraint_1_power_limit_uw")
		}
		for _, name := range names {
			f, err := os.Open(filepath.Join(root, z.Dir, name))
			if err != nil {
				b.close()
				return nil, err
			}
			b.files, b.fds = append(b.files, f), append(b.fds, int(f.Fd()))
		}
	}
	return b, nil
}

func (b *bare) look() error {
	for _, fd := range b.fds {
		if n, err := unix.Pread(fd, b.buf[:], 0); err != nil || n == 0 {
			return fmt.Errorf("bare read: %d bytes: %w", n, err)
		}
	}
	return nil
}

func (b *bare) close() {
	for _, f := range b.files {
		_ = f.Close()
	}
}

// sample measures what a sample costs on plain files, where a read is cheapest
// and what is done with the text weighs most.
func sample(ctx context.Context, r *run) error {
	node, err := emulator.NewNode(filepath.Join(r.dir, "n01"), emulator.DefaultSpec())
	if err != nil {
		return err
	}
	defer func() { _ = node.Close() }()
	root, err := os.OpenRoot(node.RootDir())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	tree, err := rapl.Open(root)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	ours, err := newSampler(tree)
	if err != nil {
		return err
	}
	peer, err := openBare(node.RootDir(), tree)
	if err != nil {
		return err
	}
	defer peer.close()
	return compareReads(ctx, r, ours, peer)
}

// compareReads times both in turn, so that disturbances of the machine affect both.
func compareReads(ctx context.Context, r *run, ours *sampler, peer *bare) error {
	var us, them []float64
	err := repeat(ctx, pick(r, 3000, 300), time.Minute, func(int) error {
		began := time.Now()
		for i := range sampleBatch {
			if err := ours.look(time.Duration(i+1) * loopPeriod); err != nil {
				return err
			}
		}
		middle := time.Now()
		for range sampleBatch {
			if err := peer.look(); err != nil {
				return err
			}
		}
		us, them = append(us, 1e6*middle.Sub(began).Seconds()/sampleBatch), append(them, 1e6*time.Since(middle).Seconds()/sampleBatch)
		return nil
	})
	r.put("sample", us, them, "%d files, %d samples; peer: bare preads of the same plain files", len(peer.files), len(us)*sampleBatch)
	return err
}
