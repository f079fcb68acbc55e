package live

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/lab/cluster"
)

// plant is what all systems have in common: the group of processes, the folder of the run, and the programs.
type plant struct {
	shape

	group     *cluster.Group
	dir       string
	scheduler string
	sleep     string
	// startWorker starts a worker of one slot on a node that is called name, which pulls from addr.
	startWorker func(name, addr string) error
	// startMaster starts the master of a group, with so many slots reserved.
	startMaster func(group, listen string, reserved int) error
}

// newPlant makes the folder's parts and finds the programs.
func newPlant(dir, bin string, of shape) (*plant, error) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return nil, fmt.Errorf("live: the tasks' program: %w", err)
	}
	for _, part := range []string{"out", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o755); err != nil {
			return nil, fmt.Errorf("live: folder of the run: %w", err)
		}
	}
	g, err := cluster.NewGroup(filepath.Join(dir, "logs"))
	if err != nil {
		return nil, err
	}
	p := &plant{shape: of, group: g, dir: dir, scheduler: filepath.Join(bin, "scheduler"), sleep: sleep}
	p.startWorker = p.workerProcess
	p.startMaster = func(group, listen string, reserved int) error { return p.masterProcess(group, listen, reserved) }
	return p, nil
}

// workerProcess is startWorker by a process.
func (p *plant) workerProcess(name, addr string) error {
	// A worker of one slot needs one thread of Go's; 120 of them share the machine.
	_, err := p.group.Start(name, []string{"GOMAXPROCS=1"}, p.workerCommand(name, addr, 1)...)
	return err
}

func (p *plant) workerCommand(name, addr string, slots int) []string {
	return []string{
		p.scheduler, "worker", "--node", name, "--scheduler", addr, "--slots", strconv.Itoa(slots), "--dir", filepath.Join(p.dir, "work", name), "--dev", "--log-level", "warn",
	}
}

// task is a task of a trace: a sleep.
func (p *plant) task(job string, index int, length float64) *headroomv1.Task {
	return &headroomv1.Task{
		Ref:    &headroomv1.TaskRef{Job: job, Phase: "map", Index: uint32(index)},
		Argv:   []string{p.sleep, strconv.FormatFloat(length, 'f', 6, 64)},
		Output: filepath.Join(p.dir, "out", job+"-"+strconv.Itoa(index)),
		Dir:    p.dir,
	}
}

const (
	// startPatience bounds how long all processes may take to find each other.
	startPatience = time.Minute
	// lookEvery is how often is looked whether they have.
	lookEvery = 50 * time.Millisecond
)

// await looks until ready, or says what is not.
func await(ctx context.Context, what string, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		ok, err := ready()
		if err != nil || ok {
			return err
		}
		if !pause.For(ctx, lookEvery) {
			return fmt.Errorf("live: %s: %w", what, ctx.Err())
		}
	}
}
