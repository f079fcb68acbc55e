package masters

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/cluster"
	"headroom/scheduler/distributor"
)

// Capped replays a load of counting tasks on the nodes of a site of two racks, a group for each, with so many
// slots a node. Tasks are split among the groups by their learned power, or evenly.
func Capped(ctx context.Context, site *cluster.Site, dir, bin string, slots int, learned bool, loops int, l *Load) (took []float64, err error) {
	each := len(site.Nodes()) / 2
	p, err := newPlant(dir, bin, Shape{Groups: 2, Each: each, Distributors: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.group.Close()) }()
	ports, err := cluster.FreePorts(2)
	if err != nil {
		return nil, err
	}
	var groups []distributor.Group
	for i, addr := range ports {
		name, more := site.Racks()[i], []string{}
		groups = append(groups, distributor.Group{Name: name, Masters: ports[i : i+1]})
		for _, c := range site.Addresses() {
			more = append(more, "--coordinators", c)
		}
		if err := p.master(name, addr, 0, more...); err != nil {
			return nil, err
		}
	}
	for i, node := range site.Nodes() {
		on := cluster.OnNode(bin+"/powerlab", site.NodeDir(), node)
		if _, err := p.group.Start("worker-"+node, nil, on(p.workerCommand(node, ports[i/each], slots))...); err != nil {
			return nil, err
		}
	}
	spread := pigeon.Even
	if learned {
		spread = pigeon.Balanced
	}
	s, err := newPigeon(ctx, groups, 1, slots*each, spread, func(job string, index int, _ float64) *headroomv1.Task {
		t := p.task(job, index, 0)
		t.Argv = count(loops)
		return t
	})
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
	best := seconds
	for i := range 5 {
		argv := count(tried)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("masters: time a task: %w", err)
		}
		if took := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(); i == 0 || took < best {
			best = max(took, 0.001)
		}
	}
	return int(tried*seconds/best) + 1, nil
}
