package bench

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/procfs/sysfs"

	"headroom/lab/emulator"
	"headroom/rapl"
)

// sampleProcfs measures one reading of every energy counter beside the powercap
// reader of prometheus/procfs, which Prometheus' node exporter reads RAPL with.
func sampleProcfs(ctx context.Context, r *run) (items []Item, err error) {
	node, err := emulator.NewNode(filepath.Join(r.dir, "n01"), emulator.DefaultSpec())
	if err != nil {
		return nil, err
	}
	defer func() { _ = node.Close() }()
	root, err := os.OpenRoot(node.RootDir())
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	tree, err := rapl.Open(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }()
	fs, err := sysfs.NewFS(filepath.Join(node.RootDir(), "sys"))
	if err != nil {
		return nil, err
	}
	theirs, err := sysfs.GetRaplZones(fs)
	if err != nil {
		return nil, err
	}
	var ours []*rapl.Meter
	for _, z := range append(tree.OfKind(rapl.Package), tree.OfKind(rapl.DRAM)...) {
		ours = append(ours, rapl.NewMeter(z))
	}
	// Both read as many zones as powerd does, so that one reading compares with one.
	theirs = theirs[:min(len(theirs), len(ours))]
	return besideProcfs(ctx, ours, theirs, pick(r, 2000, 300))
}

func besideProcfs(ctx context.Context, ours []*rapl.Meter, theirs []sysfs.RaplZone, batches int) ([]Item, error) {
	var us, them []float64
	for range batches {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		began := time.Now()
		for i := range sampleBatch {
			for _, m := range ours {
				if _, err := m.Look(time.Duration(i+1) * loopPeriod); err != nil {
					return nil, err
				}
			}
		}
		middle := time.Now()
		for range sampleBatch {
			for _, z := range theirs {
				if _, err := z.GetEnergyMicrojoules(); err != nil {
					return nil, err
				}
			}
		}
		us, them = append(us, perSample(middle.Sub(began))/float64(len(ours))), append(them, perSample(time.Since(middle))/float64(len(theirs)))
	}
	i := newItem("sample-procfs", "reading one energy counter", "us").spread(us).is(quantile(us, 0.5)).against(quantile(them, 0.5))
	return []Item{i.say("medians; peer: GetEnergyMicrojoules of prometheus/procfs on the same plain files")}, nil
}
