package masters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os/exec"
	"path/filepath"
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
	*plant

	distributors []*distributor.Distributor
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
	for g, name := range p.groups {
		all = append(all, distributor.Group{Name: name, Masters: ports[g : g+1]})
		if err := p.startMaster(name, ports[g], p.Reserved); err != nil {
			return nil, err
		}
		for w := range p.Each {
			if err := p.startWorker(p.nodes[g*p.Each+w], ports[g]); err != nil {
				return nil, err
			}
		}
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &pigeonSystem{plant: p, stop: cancel}
	for i := range p.Distributors {
		d, err := distributor.New(distributor.Config{
			Name: "d" + strconv.Itoa(i+1), Incarnation: 1, Groups: all, Spread: p.spread, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.distributors = append(s.distributors, d)
		s.running.Go(func() { _ = d.Run(running) }) // it ends with the context only
	}
	err = await(ctx, "masters and workers are not ready", func() (bool, error) {
		for _, d := range s.distributors {
			all, err := d.Status(ctx)
			if err != nil || slices.ContainsFunc(all, func(g *headroomv1.DispatchGroup) bool { return int(g.GetSlots()) != p.Each*p.slots }) {
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

// Capped replays a load of counting tasks on the nodes of a site of two racks, a group for each, with so many
// slots a node. Tasks are split among the groups by their learned power, or evenly.
func Capped(ctx context.Context, site *cluster.Site, dir, bin string, slots int, learned bool, loops int, l *Load) (took []float64, err error) {
	p, err := newPlant(dir, bin, Shape{Groups: 2, Each: len(site.Nodes()) / 2, Distributors: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.group.Close()) }()
	p.groups, p.nodes, p.slots = site.Racks(), site.Nodes(), slots
	p.argv = func(float64) []string { return count(loops) }
	if learned {
		p.spread = pigeon.Balanced
	}
	var coordinators []string
	for _, c := range site.Addresses() {
		coordinators = append(coordinators, "--coordinators", c)
	}
	p.startMaster = func(group, listen string, reserved int) error {
		return p.master(group, listen, reserved, coordinators...)
	}
	p.startWorker = func(name, addr string) error {
		on := cluster.OnNode(filepath.Join(bin, "powerlab"), site.NodeDir(), name)
		_, err := p.group.Start("worker-"+name, nil, on(p.workerCommand(name, addr))...)
		return err
	}
	s, err := startPigeon(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return replay(ctx, l, s, 1)
}

// count is a program that counts.
func count(loops int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", loops)}
}

// Loops is how far a task has to count to take so many seconds of CPU, by the best of five.
func Loops(ctx context.Context, seconds float64) (int, error) {
	const tried = 200_000
	best := math.Inf(1)
	for range 5 {
		argv := count(tried)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("masters: time a task: %w", err)
		}
		best = min(best, max(0.001, (cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Seconds()))
	}
	return int(tried*seconds/best) + 1, nil
}
