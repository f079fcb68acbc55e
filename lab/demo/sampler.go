package demo

import (
	"context"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// Periods of looking.
const (
	sampleEvery = 250 * time.Millisecond // a row of power.csv
	jobsEvery   = 250 * time.Millisecond // the scheduler's list
)

// sampler samples the cluster from outside and records what it sees.
type sampler struct {
	tracker *tracker
	client  *client
	nodes   []nodeFiles
	csv     *csvFile
	// list is where the list of jobs comes from.
	list func(context.Context) ([]*headroomv1.Job, error)

	energy map[string]float64 // of the last look, joules since boot
}

// every calls f at a fixed pace until ctx ends, or f fails while it has not. A late call is not made up for.
func every(ctx context.Context, d time.Duration, f func() error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		err := f()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchJobs keeps the list of jobs fresh.
func (w *sampler) watchJobs(ctx context.Context) error {
	return every(ctx, jobsEvery, func() error {
		if jobs, err := w.list(ctx); err == nil {
			w.tracker.setJobs(jobs)
		}
		return nil
	})
}

// sample takes rows until ctx ends or one cannot be written.
func (w *sampler) sample(ctx context.Context) error {
	return every(ctx, sampleEvery, func() error {
		s := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return w.csv.row(s)
	})
}

// look is one row: first the coordinators, then the nodes, so that what a commit
// brought about is never seen before the commit.
func (w *sampler) look(ctx context.Context) sample {
	var s sample
	if domain, meta, err := w.client.site(ctx); err == nil {
		w.tracker.commit(meta.GetRevision(), units.Power(domain.GetBudgetUw()))
		w.tracker.answered(meta)
		s.reserved = new(units.Power(domain.GetReservedUw()))
	}
	held, measured := units.Power(0), units.Power(0)
	s.held, s.measured = &held, &measured
	for _, n := range w.nodes {
		if p, _, err := n.held(); err == nil {
			w.tracker.locked(func() { w.tracker.holding[n.name] = p })
			held += p
		} else {
			s.held = nil // never a partial sum
		}
		p := w.drawnBy(n)
		if s.nodes = append(s.nodes, p); p != nil {
			measured += *p
		} else {
			s.measured = nil
		}
	}
	w.tracker.add(&s)
	return s
}

// drawnBy is the node's wall power, or nil. Its energy since the last look
// goes to its jobs.
func (w *sampler) drawnBy(n nodeFiles) *units.Power {
	v, err := n.plant(time.Now())
	if err != nil {
		return nil
	}
	if last, ok := w.energy[n.name]; ok {
		w.tracker.burnt(n.name, v.EnergyJ-last)
	}
	w.energy[n.name] = v.EnergyJ
	return new(units.FromWatts(v.Wall1sW))
}
