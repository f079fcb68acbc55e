// Claims: Pigeon, Sparrow and Eagle run every task of every job once, on real workers over RPC; a task that fails ends the replay;
// a system that does not come up leaves nothing running.
package masters

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/lab/traces"
	"headroom/scheduler/access"
	"headroom/scheduler/local"
	"headroom/scheduler/master"
)

// tiny is a plant of eight workers that run in this process.
func tiny(t *testing.T) *plant {
	t.Helper()
	p := testkit.Need(newPlant(t.TempDir(), "", Shape{Groups: 2, Each: 4, Reserved: 1, Distributors: 2}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	p.startWorker = func(name, addr string) error {
		w, err := local.New(local.Config{Node: name, Schedulers: []string{addr}, Slots: 1, Dir: filepath.Join(p.dir, "work", name), Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			running.Go(func() { _ = w.Run(ctx) })
		}
		return err
	}
	p.startMaster = func(group, listen string, reserved int) error {
		l, err := rpc.Listen(listen)
		if err != nil {
			return err
		}
		logger := slog.New(slog.DiscardHandler)
		m, err := master.New(master.Config{Name: "m-" + group, Group: group, Reserved: master.Reserved{Slots: reserved}, Guard: access.New(true, "", logger), Logger: logger})
		if err == nil {
			running.Go(func() { _ = m.Run(ctx, l) })
		}
		return err
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

// burst is a load of jobs that come faster than eight workers can run them for a while, every fourth a long one.
func burst(jobs int) *Load {
	l, random := &Load{Cutoff: 0.01}, rand.New(rand.NewPCG(1, 2))
	for i := range jobs {
		j := traces.Job{Arrival: 0.01 * float64(i), Mean: 0.005}
		if i%4 == 3 {
			j.Mean = 0.03
		}
		for range 1 + random.IntN(6) {
			j.Times = append(j.Times, 2*j.Mean*random.Float64())
		}
		l.Jobs = append(l.Jobs, j)
	}
	return l
}

func TestSystemsRunAllTasksOnce(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(context.Context, *plant, uint64) (system, error){
		"sparrow": startSparrow, "eagle": startEagle,
		"pigeon": func(ctx context.Context, p *plant, _ uint64) (system, error) { return startPigeon(ctx, p) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, l := tiny(t), burst(40)
			s := testkit.Need(begin(t.Context(), p, 1))(t)
			took := testkit.Need(replay(t.Context(), l, s, p.Distributors))(t)
			testkit.Check(t, s.close())
			tasks := 0
			for i := range l.Jobs {
				tasks += len(l.Jobs[i].Times)
				if took[i] < slices.Max(l.Jobs[i].Times) {
					t.Errorf("job %d took %v s, less than its longest task", i, took[i])
				}
			}
			// The output of a task appears once, under its name: one that ran twice would have failed.
			if out := testkit.Need(os.ReadDir(filepath.Join(p.dir, "out")))(t); len(out) != tasks {
				t.Errorf("%d outputs of %d tasks", len(out), tasks)
			}
		})
	}
}

func TestFailedTaskEndsTheReplay(t *testing.T) {
	t.Parallel()
	p := tiny(t)
	p.argv = func(float64) []string { return []string{"/bin/false"} }
	s := testkit.Need(startSparrow(t.Context(), p, 1))(t)
	_, err := replay(t.Context(), burst(4), s, p.Distributors)
	if err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("%v", err)
	}
	testkit.Check(t, s.close())
}

// The distributors of a system that does not come up end with it.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	p := tiny(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := startPigeon(ctx, p); s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", s, err)
	}
}
