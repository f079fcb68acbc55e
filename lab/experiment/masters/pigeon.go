package masters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/cluster"
	"headroom/lab/traces"
	"headroom/scheduler/distributor"
)

// pigeonSystem has the production's distributor in this process, several times.
type pigeonSystem struct {
	distributors []*distributor.Distributor
	task         func(job string, index int, length float64) *headroomv1.Task
	stop         context.CancelFunc
	running      sync.WaitGroup
}

// startPigeon starts the masters with their workers as processes.
func startPigeon(ctx context.Context, p *plant) (system, error) {
	ports, err := cluster.FreePorts(p.Groups)
	if err != nil {
		return nil, err
	}
	var all []distributor.Group
	for g := range p.Groups {
		name := "g" + strconv.Itoa(g+1)
		all = append(all, distributor.Group{Name: name, Masters: ports[g : g+1]})
		if err := p.startMaster(name, ports[g], p.Reserved); err != nil {
			return nil, err
		}
		for w := range p.Each {
			if err := p.startWorker(fmt.Sprintf("%s-w%02d", name, w+1), ports[g]); err != nil {
				return nil, err
			}
		}
	}
	return newPigeon(ctx, all, p.Distributors, p.Each, pigeon.Even, p.task)
}

// newPigeon runs so many distributors over groups of so many slots each.
func newPigeon(ctx context.Context, groups []distributor.Group, count, each int, spread pigeon.Spread, task func(string, int, float64) *headroomv1.Task) (system, error) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &pigeonSystem{task: task, stop: cancel}
	for i := range count {
		d, err := distributor.New(distributor.Config{
			Name: "d" + strconv.Itoa(i+1), Incarnation: 1, Groups: groups, Spread: spread, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.distributors = append(s.distributors, d)
		s.running.Go(func() { _ = d.Run(running) }) // it ends with the context only
	}
	err := await(ctx, "masters and workers are not ready", func() (bool, error) {
		for _, d := range s.distributors {
			all, err := d.Status(ctx)
			if err != nil || slices.ContainsFunc(all, func(g *headroomv1.DispatchGroup) bool { return int(g.GetSlots()) != each }) {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *pigeonSystem) run(ctx context.Context, at, job int, j *traces.Job, long bool) error {
	name := "j" + strconv.Itoa(job+1)
	f, err := s.distributors[at].Submit(ctx, distributor.Job{Tasks: len(j.Times), High: !long, Task: func(index, attempt int) *headroomv1.Task {
		t := s.task(name, index, j.Times[index])
		t.Ref.Attempt = uint32(attempt)
		return t
	}})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r, more := <-f.Results():
			if !more {
				return nil
			}
			if err := failed(r.TaskResult); err != nil {
				return err
			}
		}
	}
}

func (s *pigeonSystem) close() error {
	s.stop()
	s.running.Wait()
	return nil
}
