package distributor

// Claims: programs hand tasks to a distributor as to a master, and each task has one result, whether groups lose attempts, the
// stream breaks, or a client takes its tasks back; clients with the same names of jobs do not meet.

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
)

// fronted serves a front over groups, and returns its address and how its connections are cut.
func fronted(t *testing.T, groups ...[]*plant) (address string, front *Front) {
	t.Helper()
	cfg := Config{Name: "d1", Incarnation: 1, WaitMost: 10_000, Logger: slog.New(slog.DiscardHandler)}
	for i, g := range groups {
		x := Group{Name: fmt.Sprintf("g%d", i)}
		for _, p := range g {
			x.Masters = append(x.Masters, p.address)
		}
		cfg.Groups = append(cfg.Groups, x)
	}
	front = NewFront(testkit.Need(New(cfg))(t))
	l := testkit.Need(rpc.Listen("127.0.0.1:0"))(t)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewMasterServiceHandler(front, rpc.HandlerOptions()...))
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { testkit.Check(t, front.Run(ctx)) })
	over.Go(func() { testkit.Check(t, rpc.Serve(ctx, l, mux)) })
	t.Cleanup(func() {
		cancel()
		over.Wait()
	})
	return l.Addr().String(), front
}

// client runs a distributor that hands its tasks to a front.
func clientOf(t *testing.T, name, address string) *Distributor {
	t.Helper()
	d := testkit.Need(New(Config{Name: name, Incarnation: 1, Groups: []Group{{Name: "all", Masters: []string{address}}}, Logger: slog.New(slog.DiscardHandler)}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		testkit.Check(t, <-over)
	})
	return d
}

func TestFrontHandsTasksOn(t *testing.T) {
	t.Parallel()
	a, b := newPlant(t, "a", true, 100), newPlant(t, "b", true, 100)
	a.auto, b.auto = true, true
	address, front := fronted(t, []*plant{a}, []*plant{b})
	one, two := clientOf(t, "c1", address), clientOf(t, "c2", address)
	flights := []*Flight{submit(t, one, 1500, false), submit(t, two, 1500, false), submit(t, two, 700, true)}
	for _, f := range flights {
		f.check(t)
	}
	front.mu.Lock()
	defer front.mu.Unlock()
	if len(front.clients) != 2 || len(front.clients["c1"].flying) > 0 {
		t.Errorf("%d clients, %d tasks left", len(front.clients), len(front.clients["c1"].flying))
	}
}

func TestFrontLosesCutsAndStops(t *testing.T) {
	t.Parallel()
	a := newPlant(t, "a", true, 100)
	address, front := fronted(t, []*plant{a})
	d := clientOf(t, "c1", address)
	f := submit(t, d, 3, false)
	before := a.holds(t, 3)
	if before[0].job != "c1/j-false" {
		t.Errorf("tasks of job %q", before[0].job)
	}
	// The group loses the first; its client hands it over as a new attempt.
	reply := make(chan *session, 1)
	s := testkit.Need(ask(t.Context(), front.distributor, peek{reply}, reply))(t)
	front.distributor.post(t.Context(), received{s, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: &headroomv1.GroupResults{Lost: []*headroomv1.TaskRef{a.task(before[0]).GetRef()}}}}})
	testkit.Eventually(t, patience, "a new attempt", func() bool {
		name := before[0]
		name.attempt = 1
		return a.task(name) != nil
	})
	// The client's stream is cut; it hands over what it has handed over.
	front.mu.Lock()
	front.clients["c1"].session.end()
	front.mu.Unlock()
	testkit.Eventually(t, patience, "the client is back", func() bool {
		groups := testkit.Need(d.Status(t.Context()))(t)
		return groups[0].GetMasters()[0].GetState() == StateActive && groups[0].GetOutstanding() == 3
	})
	f.Cancel(t.Context())
	testkit.Eventually(t, patience, "all is taken back", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.known) == 1 // the lost attempt, which its master has forgotten
	})
}

// task is a task that the master holds; nil for none.
func (p *plant) task(name attempt) *headroomv1.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[name]
}
