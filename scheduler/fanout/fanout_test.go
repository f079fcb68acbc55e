// Claims, with a real master and a real worker: each task counts once, a failed one is tried again and given up as the floor
// permits, never below it; what is dropped was recorded before; a run goes on where an earlier one has stopped.
package fanout

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/distributor"
	"headroom/scheduler/local"
	"headroom/scheduler/master"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// site is a group with one master and one worker, and an engine that uses it.
type site struct {
	*Engine
	events chan Event
	dir    string
	drops  chan []int
}

// background runs something until the end of the test.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-over)
	})
}

func newSite(t *testing.T, slots int) *site {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	l := testkit.Need(rpc.Listen("127.0.0.1:0"))(t)
	m := testkit.Need(master.New(master.Config{Name: "m1", Group: "r1", Guard: access.New(true, "", quiet), Logger: quiet}))(t)
	background(t, func(ctx context.Context) error { return m.Run(ctx, l) })
	address := l.Addr().String()
	s := &site{events: make(chan Event, 1000), drops: make(chan []int, 1000), dir: t.TempDir()}
	w := testkit.Need(local.New(local.Config{Node: "n01", Schedulers: []string{address}, Slots: slots, Dir: t.TempDir(), Logger: quiet}))(t)
	background(t, w.Run)
	d := testkit.Need(distributor.New(distributor.Config{
		Name: "d1", Incarnation: 1, Groups: []distributor.Group{{Name: "r1", Masters: []string{address}}}, Logger: quiet,
	}))(t)
	s.Engine = New(d, func(ctx context.Context, e Event) {
		select {
		case s.events <- e:
		case <-ctx.Done():
		}
	}, quiet)
	background(t, s.Run)
	return s
}

// run is a run whose map tasks are the shell script, with the task's number in $I.
func (s *site) run(tasks int, script string) Run {
	task := func(ref *headroomv1.TaskRef, name string, argv ...string) *headroomv1.Task {
		return &headroomv1.Task{
			Ref: ref, Argv: argv, Output: filepath.Join(s.dir, name), Dir: s.dir, Env: []string{fmt.Sprintf("I=%d", ref.GetIndex())},
		}
	}
	return Run{
		Plan: dispatch.Plan{ID: "j", Tasks: tasks, MinTasks: 1, MaxAttempts: 2}, Number: 1, First: 1 << 16,
		Draws:  func() func() uint64 { return rand.NewPCG(7, 0).Uint64 },
		Recall: func(context.Context) (dispatch.Past, error) { return dispatch.Past{}, nil },
		Map: func(index int, attempt uint32) *headroomv1.Task {
			return task(&headroomv1.TaskRef{Job: "j", Phase: "map", Index: uint32(index), Attempt: attempt}, fmt.Sprintf("map-%d", index), "/bin/sh", "-c", script)
		},
		ReduceOf: func(maps []int, attempt uint32) *headroomv1.Task {
			argv := []string{"/bin/sh", "-c", "cat $*", "sh"}
			for _, i := range maps {
				argv = append(argv, filepath.Join(s.dir, fmt.Sprintf("map-%d", i)))
			}
			return task(&headroomv1.TaskRef{Job: "j", Phase: "reduce", Attempt: attempt}, "result", argv...)
		},
		Drop: func(_ context.Context, indexes []int, _ string) error {
			s.drops <- slices.Clone(indexes)
			return nil
		},
	}
}

// end is the last event of a run, with the progress before it.
func (s *site) end(t *testing.T) (last Event, p dispatch.EngineProgress) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case e := <-s.events:
			if e.Ended {
				return e, p
			}
			p = e.Progress
		case <-limit:
			t.Fatalf("the run has not ended: %+v", p)
		}
	}
}

func TestJobWithReduce(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4)
	r := s.run(100, "echo begun >> runs; echo $I")
	r.Reduce, r.High = true, true
	s.Start(r)
	e, p := s.end(t)
	if !e.OK || e.Outcome != "100 of 100 tasks done" || p.Done != 100 || p.Running > 1 {
		t.Errorf("ended %+v after %+v", e, p)
	}
	result := strings.Fields(string(testkit.Need(os.ReadFile(filepath.Join(s.dir, "result")))(t)))
	if len(result) != 100 || result[99] != "99" {
		t.Errorf("result %v", result)
	}
	if runs := testkit.Need(os.ReadFile(filepath.Join(s.dir, "runs")))(t); strings.Count(string(runs), "begun") != 100 {
		t.Errorf("%d tasks have begun", strings.Count(string(runs), "begun"))
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		least   float64
		reduce  bool
		ok      bool
		outcome string
	}{
		"once":      {"test -e once-$I || { echo > once-$I; exit 3; }", 1, false, true, "6 of 6 tasks done"},
		"permitted": {"test $I != 4", 0.8, true, true, "5 of 6 tasks done, 1 dropped (at least 5 required)"},
		"too many":  {"echo bad >&2; test $I -gt 1", 0.8, false, false, "failed 2 times, last: exit status 1: bad"},
		"reduce":    {"true", 0.5, true, false, "reduce task 0 failed 2 times"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			r := s.run(6, c.script)
			r.MinTasks, r.Reduce = c.least, c.reduce
			if name == "reduce" {
				r.ReduceOf = func(_ []int, attempt uint32) *headroomv1.Task {
					return &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: "j", Phase: "reduce", Attempt: attempt}, Argv: []string{"/bin/false"}, Output: filepath.Join(s.dir, "result")}
				}
			}
			s.Start(r)
			if e, _ := s.end(t); e.OK != c.ok || !strings.Contains(e.Outcome, c.outcome) {
				t.Errorf("ended %+v, want %s", e, c.outcome)
			}
			if name == "permitted" {
				if d := <-s.drops; !slices.Equal(d, []int{4}) {
					t.Errorf("recorded %v", d)
				}
			}
		})
	}
}

// A run with an error bound ends as soon as the tasks of its floor are done, one with a deadline at the deadline; what runs is killed.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(*Run){
		"error":    func(r *Run) { r.ErrorBound = true },
		"deadline": func(r *Run) { r.Deadline = time.Now().Add(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 4)
			r := s.run(4, "test $I -gt 0 || sleep 300")
			r.MinTasks = 0.7
			c(&r)
			s.Start(r)
			e, _ := s.end(t)
			if want := "3 of 4 tasks done, 1 dropped (at least 3 required), error 25 %"; !e.OK || e.Outcome != want {
				t.Errorf("ended %+v, want %s", e, want)
			}
			if d := <-s.drops; !slices.Equal(d, []int{0}) {
				t.Errorf("recorded %v", d)
			}
		})
	}
}

// Which tasks a ratio drops follows from the seed alone, whether it is there from the start or rises later.
func TestDropRatio(t *testing.T) {
	t.Parallel()
	order := dispatch.DropOrder(10, rand.NewPCG(7, 0).Uint64)
	s := newSite(t, 1)
	r := s.run(10, "true")
	r.Theta, r.MinTasks = 0.5, 0.6 // the floor leaves 4
	s.Start(r)
	if e, p := s.end(t); !e.OK || p.Done != 6 || p.Dropped != 4 {
		t.Errorf("ended %+v after %+v", e, p)
	}
	if d := <-s.drops; !slices.Equal(d, order[:4]) {
		t.Errorf("dropped %v, want %v", d, order[:4])
	}
	r = s.run(10, "test -e go || sleep 0.1")
	r.ID, r.MinTasks = "k", 0.1
	s.Start(r)
	s.Deflate("k", 0.3)
	e, p := s.end(t)
	if !e.OK || p.Done+p.Dropped != 10 || p.Dropped > 3 {
		t.Errorf("ended %+v after %+v", e, p)
	}
	for range p.Dropped {
		select {
		case d := <-s.drops:
			for _, i := range d {
				if !slices.Contains(order, i) {
					t.Errorf("dropped %d", i)
				}
			}
		default:
		}
	}
}

func TestKilledAndTakenOver(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	r := s.run(4, "test -e go || sleep 300")
	s.Start(r)
	s.Kill("j", 1)
	if e, _ := s.end(t); e.OK || e.Outcome != "" {
		t.Errorf("ended %+v", e)
	}
	s.Kill("j", 1)
	if e, _ := s.end(t); e.OK {
		t.Errorf("an unknown run ended %+v", e)
	}
	testkit.WriteFile(t, filepath.Join(s.dir, "go"), "")
	r = s.run(4, "test -e go; echo $I >> again")
	r.First = 2 << 16
	r.Recall = func(context.Context) (dispatch.Past, error) {
		return dispatch.Past{Done: []int{0, 1, 9}, Dropped: []int{1, -1}}, nil
	}
	s.Start(r)
	if e, p := s.end(t); !e.OK || p.Done != 3 || p.Dropped != 1 {
		t.Errorf("ended %+v after %+v", e, p)
	}
	if again := strings.Fields(string(testkit.Need(os.ReadFile(filepath.Join(s.dir, "again")))(t))); len(again) != 2 {
		t.Errorf("ran again: %v", again)
	}
}
