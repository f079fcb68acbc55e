package demo

import (
	"context"
	"encoding/csv"
	"fmt"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

const (
	// sampleEvery is the time between two rows of power.csv.
	sampleEvery = 250 * time.Millisecond
	// watchEvery is the time between two looks at the jobs, and at the queues of an engine.
	watchEvery = 250 * time.Millisecond
	// lookWait bounds one look at the leader: a row waits for it.
	lookWait = 300 * time.Millisecond
)

// every calls f at a fixed pace until ctx ends, or f fails while it has not. A late call is not made up for.
func every(ctx context.Context, d time.Duration, f func() error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		err := f()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// list is the list of jobs: that of the scheduler, or, with an engine, that of the coordinators.
func (d *show) list(ctx context.Context) ([]*headroomv1.Job, error) {
	if d.opts.engine != engineLocal {
		return d.lab.Jobs(ctx)
	}
	answer, err := d.lab.List(ctx)
	return answer.GetJobs(), err
}

// watch keeps the list of jobs fresh until ctx or a program ends, and looks at the queues of an engine.
func (d *show) watch(ctx context.Context) error {
	dropped := map[string]int{}
	return every(ctx, watchEvery, func() error {
		if jobs, err := d.list(ctx); err == nil {
			d.tracker.setJobs(jobs)
		}
		if d.lab.Engine.Queues != nil && d.tracker.now() > 0 {
			queues, err := d.lab.Engine.Queues(ctx)
			if err != nil {
				queues = nil // not known is not the last value
			}
			d.tracker.locked(func() { d.take(queues, dropped) })
		}
		return d.running(ctx)
	})
}

// columns are those of power.csv (docs/demo.md).
func columns(nodes []string) []string {
	return append([]string{"time_s", "budget_w", "reserved_w", "held_w", "measured_w"}, nodes...)
}

// row is a sample in power.csv. Unknown values are empty.
func (s *sample) row() []string {
	fields := []string{fmt.Sprintf("%.3f", s.at.Seconds())}
	for _, p := range append([]*units.Power{&s.budget, s.reserved, s.held, s.measured}, s.nodes...) {
		text := ""
		if p != nil {
			text = fmt.Sprintf("%.3f", p.Watts())
		}
		fields = append(fields, text)
	}
	return fields
}

// sample writes rows until ctx ends or one cannot be written.
func (d *show) sample(ctx context.Context, rows *csv.Writer) error {
	energy := map[string]float64{}
	return every(ctx, sampleEvery, func() error {
		s := d.look(ctx, energy)
		if ctx.Err() != nil {
			return nil
		}
		_ = rows.Write(s.row()) // Error has its error too
		rows.Flush()
		return rows.Error()
	})
}

// look is one row: first the coordinators, then the nodes, so that what a commit
// brought about is never seen before the commit. energy is that of the look before, joules since boot.
func (d *show) look(ctx context.Context, energy map[string]float64) sample {
	var s sample
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	if domain, meta, err := d.lab.Domain(ctx); err == nil {
		d.tracker.commit(meta.GetRevision(), units.Power(domain.GetBudgetUw()))
		s.leader, s.reserved = meta.GetServer(), new(units.Power(domain.GetReservedUw()))
	}
	s.held, s.measured = new(units.Power(0)), new(units.Power(0))
	for _, n := range d.nodes {
		if p, _, err := n.held(); err != nil {
			s.held = nil // never a partial sum
		} else if s.held != nil {
			*s.held += p
		}
		v, err := n.plant(time.Now())
		if err != nil {
			s.nodes, s.measured = append(s.nodes, nil), nil
			continue
		}
		if last, known := energy[n.name]; known {
			d.tracker.burnt(n.name, v.EnergyJ-last)
		}
		energy[n.name] = v.EnergyJ
		p := units.FromWatts(v.Wall1sW)
		if s.nodes = append(s.nodes, &p); s.measured != nil {
			*s.measured += p
		}
	}
	d.tracker.add(&s)
	return s
}
