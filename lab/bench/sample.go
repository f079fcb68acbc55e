package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"headroom/lab/emulator"
	"headroom/rapl"
)

// sampleBatch is how many samples one timing covers: a single one is near the clock's own cost.
const sampleBatch = 100

// sample measures the cost of powerd's reads in each turn of its loop: every counter, and both limits
// of each package. They are plain files, where a read is cheapest and parsing weighs most. The peer
// is one pread of each of the same files.
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
	var ours []func(now time.Duration) error
	var peer []int // file descriptors
	defer func() {
		for _, fd := range peer {
			_ = unix.Close(fd)
		}
	}()
	open := func(z *rapl.Zone, name string, read func(time.Duration) error) {
		fd, errOpen := unix.Open(filepath.Join(node.RootDir(), z.Dir, name), unix.O_RDONLY, 0)
		ours, peer, err = append(ours, read), append(peer, fd), errors.Join(err, errOpen)
	}
	for _, z := range append(tree.OfKind(rapl.Package), tree.OfKind(rapl.DRAM)...) {
		meter := rapl.NewMeter(z)
		open(z, "energy_uj", func(now time.Duration) error { _, err := meter.Look(now); return err })
		if z.Kind != rapl.Package {
			continue
		}
		for i, name := range []string{rapl.LongTerm, rapl.ShortTerm} {
			limit, errLimit := z.Constraint(name)
			err = errors.Join(err, errLimit)
			open(z, fmt.Sprintf("constraint_%d_power_limit_uw", i), func(time.Duration) error { _, err := limit.Power(); return err })
		}
	}
	if err != nil {
		return err
	}
	var us, them []float64
	var buf [64]byte
	err = repeat(ctx, pick(r, 3000, 300), time.Minute, func(int) error {
		began := time.Now()
		for i := range sampleBatch {
			for _, read := range ours {
				if err := read(time.Duration(i+1) * loopPeriod); err != nil {
					return err
				}
			}
		}
		middle := time.Now()
		for range sampleBatch {
			for _, fd := range peer {
				if n, err := unix.Pread(fd, buf[:], 0); err != nil || n == 0 {
					return fmt.Errorf("bare read: %d bytes: %w", n, err)
				}
			}
		}
		us, them = append(us, 1e6*middle.Sub(began).Seconds()/sampleBatch), append(them, 1e6*time.Since(middle).Seconds()/sampleBatch)
		return nil
	})
	r.put("sample", us, them, "%d files, %d samples; peer: bare preads of the same plain files", len(peer), len(us)*sampleBatch)
	return err
}
