package masters

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/cluster"
	"headroom/lab/traces"
)

// Load is what is replayed. A job is long if the mean time of its tasks is above Cutoff, in s.
type Load struct {
	Jobs   []traces.Job
	Cutoff float64
}

// Long reports whether a job is a long one.
func (l *Load) Long(job int) bool { return l.Jobs[job].Mean > l.Cutoff }

// Shape is how many workers there are in how many groups, how many of each group are reserved for short jobs, and the distributors.
type Shape struct{ Groups, Each, Reserved, Distributors int }

// Workers is how many workers there are.
func (s Shape) Workers() int { return s.Groups * s.Each }

// short is how many workers take no tasks of long jobs.
func (s Shape) short() int { return s.Groups * s.Reserved }

// system is a cluster that runs jobs.
type system interface {
	// run gives a job to a distributor, counted from 0, and returns when all its tasks have ended well.
	run(ctx context.Context, distributor, job int, j *traces.Job, long bool) error
	// close ends what was started.
	close() error
}

// Replay replays a load on the system of a policy, with its files in dir and the programs of bin. It returns
// how long each job took from when the load submits it, in s.
func Replay(ctx context.Context, policy, dir, bin string, of Shape, seed uint64, l *Load) (took []float64, err error) {
	p, err := newPlant(dir, bin, of)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.group.Close()) }()
	var s system
	switch policy {
	case "pigeon":
		s, err = startPigeon(ctx, p)
	case "sparrow":
		s, err = startSparrow(ctx, p, seed)
	case "eagle":
		s, err = startEagle(ctx, p, seed)
	default:
		err = fmt.Errorf("masters: unknown policy %s", policy)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return replay(ctx, l, s, of.Distributors)
}

// replay submits the jobs when they are due, to the distributors in turn. It ends at the first job that fails.
func replay(ctx context.Context, l *Load, s system, distributors int) ([]float64, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	took, began := make([]float64, len(l.Jobs)), time.Now()
	var running sync.WaitGroup
	for i := range l.Jobs {
		due := began.Add(time.Duration(math.Round(l.Jobs[i].Arrival * float64(time.Second))))
		if !pause.For(ctx, time.Until(due)) {
			break
		}
		running.Go(func() {
			if err := s.run(ctx, i%distributors, i, &l.Jobs[i], l.Long(i)); err != nil {
				fail(fmt.Errorf("job %d of the load: %w", i+1, err))
			}
			took[i] = time.Since(due).Seconds()
		})
	}
	running.Wait()
	return took, context.Cause(ctx)
}

// plant is what all systems have in common: the processes, the folder, and the programs.
type plant struct {
	Shape

	// groups and nodes are the names of groups and of workers, of so many slots each.
	groups, nodes  []string
	slots          int
	spread         pigeon.Spread
	group          *cluster.Group
	dir, scheduler string
	// argv is the program of a task of this length, s.
	argv func(length float64) []string
	// startWorker starts a worker that pulls from addr, startMaster the master of a group.
	startWorker func(name, addr string) error
	startMaster func(group, listen string, reserved int) error
}

// newPlant is a plant whose tasks sleep.
func newPlant(dir, bin string, of Shape) (*plant, error) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return nil, fmt.Errorf("masters: the tasks' program: %w", err)
	}
	for _, part := range []string{"out", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o755); err != nil {
			return nil, fmt.Errorf("masters: folder of the run: %w", err)
		}
	}
	p := &plant{Shape: of, slots: 1, spread: pigeon.Even, dir: dir, scheduler: filepath.Join(bin, "scheduler")}
	if p.group, err = cluster.NewGroup(filepath.Join(dir, "logs")); err != nil {
		return nil, err
	}
	for g := range of.Groups {
		p.groups = append(p.groups, "g"+strconv.Itoa(g+1))
	}
	for w := range of.Workers() {
		p.nodes = append(p.nodes, "w"+strconv.Itoa(w))
	}
	p.argv = func(length float64) []string { return []string{sleep, strconv.FormatFloat(length, 'f', 6, 64)} }
	p.startWorker = func(name, addr string) error {
		// A worker of one slot needs one thread of Go's; 120 of them share the machine.
		_, err := p.group.Start(name, []string{"GOMAXPROCS=1"}, p.workerCommand(name, addr)...)
		return err
	}
	p.startMaster = func(group, listen string, reserved int) error { return p.master(group, listen, reserved) }
	return p, nil
}

func (p *plant) workerCommand(name, addr string) []string {
	return []string{
		p.scheduler, "worker", "--node", name, "--scheduler", addr, "--slots", strconv.Itoa(p.slots), "--dir", filepath.Join(p.dir, "work", name), "--dev", "--log-level", "warn",
	}
}

// master starts the master of a group, with more arguments.
func (p *plant) master(group, listen string, reserved int, more ...string) error {
	name := "m-" + filepath.Base(group)
	argv := []string{p.scheduler, "master", "--name", name, "--group", group, "--listen", listen, "--reserved", strconv.Itoa(reserved), "--dev", "--log-level", "warn"}
	_, err := p.group.Start(name, nil, append(argv, more...)...)
	return err
}

func (p *plant) task(job string, index int, length float64) *headroomv1.Task {
	return &headroomv1.Task{
		Ref:    &headroomv1.TaskRef{Job: job, Phase: "map", Index: uint32(index)},
		Argv:   p.argv(length),
		Output: filepath.Join(p.dir, "out", job+"-"+strconv.Itoa(index)),
		Dir:    p.dir,
	}
}

// failed is the error of a task that did not end well.
func failed(r *headroomv1.TaskResult) error {
	if r.GetError() == "" && r.GetExitCode() == 0 {
		return nil
	}
	return fmt.Errorf("masters: task %d of job %s: exit code %d: %s", r.GetRef().GetIndex()+1, r.GetRef().GetJob(), r.GetExitCode(), strings.TrimSpace(r.GetError()))
}

// startPatience bounds the time until all processes have found each other.
const startPatience = 2 * time.Minute

func await(ctx context.Context, what string, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		ok, err := ready()
		if err != nil || ok {
			return err
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("masters: %s: %w", what, ctx.Err())
		}
	}
}
