// Claims: each task has one result whatever masters repeat, refuse, lose or forge; windows are kept; a new stream and a
// standby get the same attempts again, another group gets new ones; what does not fit is refused whole.
package distributor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long something may take that ought to happen at once.
const patience = 20 * time.Second

// plant is a master that ends tasks when it is told to, over the real protocol.
type plant struct {
	headroomv1connect.UnimplementedMasterServiceHandler
	name    string
	address string
	stop    func()

	mu     sync.Mutex
	active bool
	window uint32
	// auto ends each task at once.
	auto   bool
	known  map[attempt]*headroomv1.Task
	again  []attempt // that were handed over as known
	gone   []attempt // cancelled
	taken  int
	most   int
	change chan struct{}
}

func newPlant(t testing.TB, name string, active bool, window uint32) *plant {
	t.Helper()
	p := &plant{name: name, active: active, window: window, known: map[attempt]*headroomv1.Task{}, change: make(chan struct{})}
	p.serve(t, testkit.Need(rpc.Listen("127.0.0.1:0"))(t))
	return p
}

func (p *plant) serve(t testing.TB, l net.Listener) {
	t.Helper()
	p.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewMasterServiceHandler(p, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- rpc.Serve(ctx, l, mux) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Check(t, <-over)
	})
	t.Cleanup(p.stop)
}

// set changes the master and has its streams tell of it.
func (p *plant) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.change)
	p.change = make(chan struct{})
}

func (p *plant) state() (*headroomv1.GroupMessage, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	window := p.window - min(p.window, uint32(len(p.known)))
	return &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: &headroomv1.GroupState{
		Master: p.name, Active: p.active, Usable: 4, Window: window, WindowHigh: window, ActiveMs: 1,
	}}}, p.change
}

func (p *plant) Place(ctx context.Context, st *connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]) error {
	ctx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	var sending sync.Mutex
	send := func(m *headroomv1.GroupMessage) {
		sending.Lock()
		defer sending.Unlock()
		_ = st.Send(m) // the receiver sees that the stream is over
	}
	sender.Go(func() {
		for ctx.Err() == nil {
			m, change := p.state()
			send(m)
			select {
			case <-change:
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	defer sender.Wait()
	defer cancel()
	for {
		m, err := st.Receive()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if out := p.handle(m); out != nil {
			send(out)
			send(out) // as if the first had been lost
		}
	}
}

func (p *plant) handle(m *headroomv1.PlaceMessage) *headroomv1.GroupMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := &headroomv1.GroupResults{}
	for _, k := range m.GetTasks().GetTasks() {
		name := attemptOf(k.GetRef())
		if m.GetTasks().GetAgain() {
			p.again = append(p.again, name)
		}
		if p.auto {
			results.Results = append(results.Results, &headroomv1.TaskResult{Ref: k.GetRef()})
			continue
		}
		p.known[name] = k
		p.most = max(p.most, len(p.known))
	}
	for _, r := range m.GetCancel().GetRefs() {
		p.gone = append(p.gone, attemptOf(r))
		delete(p.known, attemptOf(r))
	}
	p.taken += len(m.GetTaken().GetRefs())
	if len(results.GetResults()) == 0 {
		return nil
	}
	return &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: results}}
}

// holds waits until the master knows so many tasks, and returns their names in order.
func (p *plant) holds(t *testing.T, n int) []attempt {
	t.Helper()
	var names []attempt
	testkit.Eventually(t, patience, fmt.Sprintf("%s holds %d tasks", p.name, n), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		names = slices.SortedFunc(maps.Keys(p.known), func(a, b attempt) int { return int(a.index) - int(b.index) })
		return len(names) == n
	})
	return names
}

// start runs a distributor over the groups.
func start(t *testing.T, waitMost int, groups ...[]*plant) *Distributor {
	t.Helper()
	cfg := Config{Name: "d1", Incarnation: 1, WaitMost: waitMost, LostAfter: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
	for i, g := range groups {
		x := Group{Name: fmt.Sprintf("g%d", i)}
		for _, p := range g {
			x.Masters = append(x.Masters, p.address)
		}
		cfg.Groups = append(cfg.Groups, x)
	}
	d := testkit.Need(New(cfg))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-over)
		d.peers.Close()
	})
	return d
}

func submit(t *testing.T, d *Distributor, tasks int, high bool) *Flight {
	t.Helper()
	job := fmt.Sprintf("j-%v", high) // references are unique
	return testkit.Need(d.Submit(t.Context(), Job{Tasks: tasks, High: high, Task: func(index, attempt int) *headroomv1.Task {
		return &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: job, Phase: "map", Index: uint32(index), Attempt: uint32(attempt)}}
	}}))(t)
}

// results waits for the end and checks that each of the tasks has one result.
func (f *Flight) check(t *testing.T) {
	t.Helper()
	seen := make([]int, f.Tasks)
	limit := time.After(patience)
	for {
		select {
		case r, open := <-f.Results():
			if !open {
				if i := slices.IndexFunc(seen, func(n int) bool { return n != 1 }); i >= 0 {
					t.Errorf("task %d has %d results", i, seen[i])
				}
				return
			}
			seen[r.Index]++
		case <-limit:
			groups, err := f.distributor.Status(context.Background())
			t.Fatalf("some of %d tasks have no result: %v, %v", f.Tasks, groups, err)
		}
	}
}

func TestEachTaskOnce(t *testing.T) {
	t.Parallel()
	a, b := newPlant(t, "a", true, 100), newPlant(t, "b", true, 100)
	a.auto, b.auto = true, true
	d := start(t, 0, []*plant{a}, []*plant{b})
	low, high := submit(t, d, 5000, false), submit(t, d, 1000, true)
	low.check(t)
	high.check(t)
	submit(t, d, 0, false).check(t)
}

func TestWindowIsKept(t *testing.T) {
	t.Parallel()
	a := newPlant(t, "a", true, 10)
	d := start(t, 25, []*plant{a})
	f := submit(t, d, 20, false)
	a.holds(t, 10)
	_, err := d.Submit(t.Context(), Job{Tasks: 16})
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitRefused || e.Hint == "" {
		t.Errorf("16 more beside 10 that wait: %v", err)
	}
	groups := testkit.Need(d.Status(t.Context()))(t)
	if g := groups[0]; g.GetWaiting() != 10 || g.GetOutstanding() != 10 || g.GetUsable() != 4 || g.GetMasters()[0].GetState() != "active" || g.Power != nil {
		t.Errorf("status %v", g)
	}
	taken := testkit.Need(f.Withdraw(t.Context(), []int{0, 19, 18, 17}, 2))(t)
	if !slices.Equal(taken, []int{19, 18}) {
		t.Errorf("took back %v", taken)
	}
	f.Cancel(t.Context())
	a.holds(t, 0)
	for range f.Results() {
		t.Error("a cancelled task has a result")
	}
	if a.most != 10 || len(a.gone) != 10 {
		t.Errorf("held %d, cancelled %d", a.most, len(a.gone))
	}
}

func TestMasterComesBack(t *testing.T) {
	t.Parallel()
	a := newPlant(t, "a", true, 10)
	d := start(t, 0, []*plant{a})
	f := submit(t, d, 8, true)
	before := a.holds(t, 8)
	a.stop()
	a.set(func() { a.known, a.auto = map[attempt]*headroomv1.Task{}, true })
	a.serve(t, testkit.Need(rpc.Listen(a.address))(t))
	f.check(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.again, func(a, b attempt) int { return int(a.index) - int(b.index) })
	if !slices.Equal(before, a.again) && len(a.again) != 0 { // none where its loss was noticed first
		t.Errorf("handed over again: %v, was %v", a.again, before)
	}
}

func TestStandbyGetsTheSameAttempts(t *testing.T) {
	t.Parallel()
	a, b := newPlant(t, "a", true, 10), newPlant(t, "b", false, 10)
	d := start(t, 0, []*plant{a, b})
	f := submit(t, d, 8, false)
	before := a.holds(t, 8)
	b.set(func() { b.active, b.auto = true, true })
	a.set(func() { a.active = false })
	f.check(t)
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.SortFunc(b.again, func(a, b attempt) int { return int(a.index) - int(b.index) })
	if !slices.Equal(before, b.again) {
		t.Errorf("handed over again: %v, was %v", b.again, before)
	}
}

func TestTasksOfALostGroupMove(t *testing.T) {
	t.Parallel()
	a, b := newPlant(t, "a", true, 10), newPlant(t, "b", true, 10)
	d := start(t, 0, []*plant{a}, []*plant{b})
	testkit.Eventually(t, patience, "both masters are active", func() bool {
		groups := testkit.Need(d.Status(t.Context()))(t)
		return groups[0].GetMasters()[0].GetState() == "active" && groups[1].GetMasters()[0].GetState() == "active"
	})
	f := submit(t, d, 8, false)
	a.holds(t, 4)
	b.holds(t, 4)
	a.stop()
	moved := b.holds(t, 8)
	news := 0
	for _, name := range moved {
		news += int(name.attempt)
	}
	if news != 4 {
		t.Errorf("of %v four are new attempts", moved)
	}
	b.set(func() { b.auto = true })
	b.stop() // what it has is handed over again
	b.serve(t, testkit.Need(rpc.Listen(b.address))(t))
	f.check(t)
	if len(b.again) > 0 {
		return
	}
	groups := testkit.Need(d.Status(t.Context()))(t)
	if groups[0].GetMasters()[0].GetState() != "lost" || groups[0].GetMasters()[0].GetTrouble() == "" || groups[0].Usable != nil {
		t.Errorf("status %v", groups[0])
	}
}

// A result is worth nothing without the proof that only the attempt's worker was told.
func TestForgedResult(t *testing.T) {
	t.Parallel()
	a := newPlant(t, "a", true, 10)
	d := start(t, 0, []*plant{a})
	f := submit(t, d, 1, false)
	name := a.holds(t, 1)[0]
	forged := &headroomv1.TaskRef{Job: name.job, Phase: name.phase, Index: name.index, Attempt: name.attempt, Proof: "x"}
	s := func() *session {
		reply := make(chan *session, 1)
		return testkit.Need(ask(t.Context(), d, peek{reply}, reply))(t)
	}()
	d.post(t.Context(), received{s, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: &headroomv1.GroupResults{Results: []*headroomv1.TaskResult{{Ref: forged}}}}}})
	d.post(t.Context(), received{s, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: &headroomv1.GroupResults{Lost: []*headroomv1.TaskRef{a.known[name].GetRef()}}}}})
	testkit.Eventually(t, patience, "the lost attempt is replaced", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		name.attempt = 1
		return a.known[name] != nil
	})
	select {
	case r := <-f.Results():
		t.Errorf("result %v", r)
	default:
	}
}

// peek returns the stream of the first group.
type peek struct{ reply chan<- *session }

func (e peek) apply(l *loop, _ time.Time) { e.reply <- l.groups[0].active }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, groups := range [][]Group{nil, {{Name: "g"}}} {
		if _, err := New(Config{Groups: groups}); err == nil {
			t.Errorf("%v is taken", groups)
		}
	}
}
