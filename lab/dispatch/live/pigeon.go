package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/cluster"
	"headroom/lab/traces"
	"headroom/scheduler/distributor"
)

// pigeonSystem has the masters and workers that production runs as processes, and the production's distributor in this
// process, several times.
type pigeonSystem struct {
	distributors []*distributor.Distributor
	task         func(job string, index int, length float64) *headroomv1.Task
	stop         context.CancelFunc
	running      sync.WaitGroup
	// end ends the processes; it does nothing where they stay.
	end func() error
}

// masterProcess is startMaster by a process, with more arguments.
func (p *plant) masterProcess(group, listen string, reserved int, more ...string) error {
	name := "m-" + filepath.Base(group)
	argv := append([]string{
		p.scheduler, "master", "--name", name, "--group", group, "--listen", listen, "--reserved", strconv.Itoa(reserved), "--dev", "--log-level", "warn",
	}, more...)
	_, err := p.group.Start(name, nil, argv...)
	return err
}

// startPigeon starts the masters with their workers.
func startPigeon(ctx context.Context, p *plant) (system, error) {
	ports, err := cluster.FreePorts(p.groups)
	if err != nil {
		return nil, err
	}
	var all []distributor.Group
	for g := range p.groups {
		name := "g" + strconv.Itoa(g+1)
		all = append(all, distributor.Group{Name: name, Masters: ports[g : g+1]})
		if err := p.startMaster(name, ports[g], p.reserved); err != nil {
			return nil, err
		}
		for w := range p.each {
			if err := p.startWorker(fmt.Sprintf("%s-w%02d", name, w+1), ports[g]); err != nil {
				return nil, err
			}
		}
	}
	s, err := newPigeon(ctx, all, p.distributors, pigeon.Even, p.task)
	if err != nil {
		return nil, err
	}
	s.end = p.group.Close
	if err := s.ready(ctx, p.each); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// newPigeon runs so many distributors over groups.
func newPigeon(ctx context.Context, groups []distributor.Group, count int, spread pigeon.Spread, task func(string, int, float64) *headroomv1.Task) (*pigeonSystem, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &pigeonSystem{task: task, stop: cancel, end: func() error { return nil }}
	for i := range count {
		d, err := distributor.New(distributor.Config{
			Name: "d" + strconv.Itoa(i+1), Incarnation: 1, Groups: groups, Spread: spread, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.distributors = append(s.distributors, d)
		s.running.Go(func() { _ = d.Run(ctx) }) // it ends with ctx only
	}
	return s, nil
}

// ready waits until each distributor sees so many slots in each group.
func (s *pigeonSystem) ready(ctx context.Context, slots int) error {
	return await(ctx, "masters and workers are not ready", func() (bool, error) {
		for _, d := range s.distributors {
			all, err := d.Status(ctx)
			if err != nil {
				return false, err
			}
			for _, g := range all {
				if int(g.GetSlots()) != slots {
					return false, nil
				}
			}
		}
		return true, nil
	})
}

// doors implements system.
func (s *pigeonSystem) doors() int { return len(s.distributors) }

// run implements system.
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

// close implements system.
func (s *pigeonSystem) close() error {
	s.stop()
	s.running.Wait()
	return s.end()
}

var errNoSystem = errors.New("live: unknown policy")

// start starts the system of a policy, with its files in dir and the programs of bin.
func start(ctx context.Context, policy, dir, bin string, seed uint64) (s system, err error) {
	p, err := newPlant(dir, bin, figure())
	if err != nil {
		return nil, err
	}
	switch policy {
	case "pigeon":
		s, err = startPigeon(ctx, p)
	case "sparrow":
		s, err = startSparrow(ctx, p, seed)
	case "eagle":
		s, err = startEagle(ctx, p, seed)
	default:
		err = fmt.Errorf("%w: %s", errNoSystem, policy)
	}
	if err != nil {
		return nil, errors.Join(err, p.group.Close())
	}
	return s, nil
}
