package distributor

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/scheduler/access"
	"headroom/scheduler/jobfile"
)

const (
	// clientsMax bounds the programs that submit tasks to a distributor.
	clientsMax = 1000
	// absentMost is how long a client may be disconnected before its tasks are cancelled.
	absentMost = 60 * time.Second
	// untakenMost bounds the results that a client has not taken; above it, the client cannot submit.
	untakenMost = 1 << 17
)

// Front lets other programs submit tasks to a distributor. It serves MasterService like the master of one group that
// consists of all groups, so any client of a master can use it. The tasks of one message are split over the groups
// together.
// | An attempt that a group has lost is reported as lost: its client submits it again as a new attempt.
type Front struct {
	headroomv1connect.UnimplementedMasterServiceHandler
	distributor *Distributor
	name        string
	since       time.Time

	mu      sync.Mutex
	clients map[string]*client
}

// client is a program that submits tasks. Front.mu guards it.
type client struct {
	name        string
	incarnation uint64
	session     *frontSession
	heard       time.Time
	// flying are its tasks without a result, ended those whose results it has not taken.
	flying map[attempt]flying
	ended  map[attempt]*headroomv1.GroupResults
}

// flying is the place of a task.
type flying struct {
	flight *Flight
	index  int
}

// frontSession is a client's stream. Front.mu guards what waits to be sent; woken signals it.
type frontSession struct {
	waiting headroomv1.GroupResults
	refused []*headroomv1.GroupRefused
	woken   chan struct{}
	over    chan struct{}
	once    sync.Once
}

func (s *frontSession) end() { s.once.Do(func() { close(s.over) }) }

// tell sends results. A client that leaves too much unread is disconnected, and may reconnect.
func (s *frontSession) tell(r *headroomv1.GroupResults) {
	if s == nil {
		return
	}
	s.waiting.Results = append(s.waiting.Results, r.GetResults()...)
	s.waiting.Lost = append(s.waiting.Lost, r.GetLost()...)
	s.wake()
}

// wake triggers sending.
func (s *frontSession) wake() {
	if len(s.waiting.GetResults())+len(s.waiting.GetLost()) > 2*untakenMost || len(s.refused) > outboxMax {
		s.end()
	}
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// take returns what waits to be sent, a batch in each message.
func (s *frontSession) take() (all []*headroomv1.GroupMessage) {
	add := func(r *headroomv1.GroupResults) {
		all = append(all, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: r}})
	}
	for part := range slices.Chunk(s.waiting.GetResults(), batchMost) {
		add(&headroomv1.GroupResults{Results: part})
	}
	for part := range slices.Chunk(s.waiting.GetLost(), batchMost) {
		add(&headroomv1.GroupResults{Lost: part})
	}
	for _, r := range s.refused {
		all = append(all, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Refused{Refused: r}})
	}
	s.waiting.Results, s.waiting.Lost, s.refused = nil, nil, nil
	return all
}

// NewFront returns a front of a distributor, which the front runs.
func NewFront(d *Distributor) *Front {
	return &Front{distributor: d, name: d.cfg.Name, since: time.Now(), clients: make(map[string]*client)}
}

type frontStream = connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]

// Place is the stream of one client.
func (f *Front) Place(ctx context.Context, st *frontStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if !jobfile.ValidName(hello.GetDistributor()) {
		return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, "stream opened without a valid client name", "use at most 63 letters, digits, dots, dashes and underscores")
	}
	if err := access.OwnName(access.CallerOf(ctx), hello.GetDistributor()); err != nil {
		return err
	}
	s := &frontSession{woken: make(chan struct{}, 1), over: make(chan struct{})}
	c, err := f.join(ctx, hello, s)
	if err != nil {
		return err
	}
	defer f.part(c, s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	broken := make(chan error, 1)
	go func() { broken <- f.receive(ctx, st, c, s) }() // ends when this handler has returned, which closes the request
	return f.transmit(ctx, st, c, s, broken)
}

// join adds a client whose stream opens.
func (f *Front) join(ctx context.Context, hello *headroomv1.PlaceHello, s *frontSession) (*client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clients[hello.GetDistributor()]
	if c == nil {
		if len(f.clients) >= clientsMax {
			return nil, rpc.Refuse(connect.CodeResourceExhausted, "full", cli.ExitRefused, "too many clients of the distributor", "stop clients that are not needed")
		}
		c = &client{name: hello.GetDistributor(), incarnation: hello.GetIncarnation()}
		c.forget(ctx)
		f.clients[c.name] = c
	}
	if c.session != nil {
		c.session.end()
	}
	if c.incarnation != hello.GetIncarnation() {
		c.forget(ctx) // submitted by its earlier process
	}
	c.incarnation, c.session, c.heard = hello.GetIncarnation(), s, time.Now()
	for _, r := range c.ended {
		s.tell(r)
	}
	return c, nil
}

// forget cancels all tasks of a client.
func (c *client) forget(ctx context.Context) {
	c.stop(ctx, slices.Collect(maps.Keys(c.flying)))
	c.flying, c.ended = make(map[attempt]flying), make(map[attempt]*headroomv1.GroupResults)
}

// stop cancels the named tasks.
func (c *client) stop(ctx context.Context, names []attempt) {
	indexes := map[*Flight][]int{}
	for _, name := range names {
		if x, flies := c.flying[name]; flies {
			indexes[x.flight] = append(indexes[x.flight], x.index)
			delete(c.flying, name)
		}
		delete(c.ended, name)
	}
	for flight, some := range indexes {
		flight.Stop(context.WithoutCancel(ctx), some)
	}
}

// Run runs the distributor until ctx ends, and removes clients that have been disconnected for too long.
func (f *Front) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	watch.Go(func() {
		for pause.For(ctx, aliveEvery) {
			f.expire(ctx)
		}
	})
	err := f.distributor.Run(ctx)
	watch.Wait()
	return err
}

func (f *Front) expire(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, c := range f.clients {
		if c.session == nil && time.Since(c.heard) > absentMost {
			c.forget(ctx)
			delete(f.clients, name)
		}
	}
}

// part records that a client's stream has ended.
func (f *Front) part(c *client, s *frontSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.end()
	if c.session == s {
		c.session, c.heard = nil, time.Now()
	}
}

// transmit sends pending messages to a client, and the state every second.
func (f *Front) transmit(ctx context.Context, st *frontStream, c *client, s *frontSession, broken <-chan error) error {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	if err := f.sendState(ctx, st); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.over:
			return rpc.Refuse(connect.CodeAborted, "conflict", cli.ExitConflict, "stream of client "+c.name+" was replaced, or is not being read", "give each client a unique name")
		case <-s.woken:
			err = f.send(st, s)
		case <-tick.C:
			err = f.sendState(ctx, st)
		}
		if err != nil {
			return err
		}
	}
}

// send sends pending messages.
func (f *Front) send(st *frontStream, s *frontSession) error {
	f.mu.Lock()
	all := s.take()
	f.mu.Unlock()
	for _, m := range all {
		if err := st.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *Front) sendState(ctx context.Context, st *frontStream) error {
	state, err := f.state(ctx)
	if err != nil {
		return err
	}
	return st.Send(&headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: state}})
}

// state returns all groups as one. The room for waiting tasks is shared among the clients.
func (f *Front) state(ctx context.Context) (*headroomv1.GroupState, error) {
	groups, err := f.distributor.Status(ctx)
	if err != nil {
		return nil, err
	}
	s := &headroomv1.GroupState{Master: f.name, Active: true, ActiveMs: time.Since(f.since).Milliseconds()}
	waiting, known := 0, true
	for _, g := range groups {
		s.Workers += g.GetWorkers()
		s.Slots += g.GetSlots()
		s.Usable += g.GetUsable()
		s.Reserved += g.GetReserved()
		s.RunningHigh += g.GetRunningHigh()
		s.RunningLow += g.GetRunningLow()
		s.WaitingHigh += g.GetWaitingHigh()
		s.WaitingLow += g.GetWaitingLow()
		s.Power += g.GetPower()
		known = known && g.Power != nil
		waiting += int(g.GetWaiting())
	}
	if !known {
		s.Power = 0 // the sum of some groups is not that of all
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Window = uint32(max(0, f.distributor.cfg.WaitMost-waiting) / max(1, len(f.clients)))
	s.WindowHigh = s.GetWindow()
	return s, nil
}

// GetGroup returns all groups as one.
func (f *Front) GetGroup(ctx context.Context, _ *connect.Request[headroomv1.GetGroupRequest]) (*connect.Response[headroomv1.GetGroupResponse], error) {
	state, err := f.state(ctx)
	if err != nil {
		return nil, err
	}
	out := &headroomv1.GetGroupResponse{State: state}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.clients {
		out.Distributors = append(out.Distributors, name)
	}
	return connect.NewResponse(out), nil
}

// receive handles a client's messages until its stream ends.
func (f *Front) receive(ctx context.Context, st *frontStream, c *client, s *frontSession) error {
	for {
		m, err := st.Receive()
		if err != nil {
			return err
		}
		f.mu.Lock()
		if c.session != s {
			f.mu.Unlock()
			return io.EOF
		}
		c.heard = time.Now()
		switch m := m.GetMessage().(type) {
		case *headroomv1.PlaceMessage_Taken:
			for _, r := range m.Taken.GetRefs() {
				delete(c.ended, attemptOf(r))
			}
		case *headroomv1.PlaceMessage_Cancel:
			f.cancel(ctx, c, m.Cancel)
		case *headroomv1.PlaceMessage_Tasks:
			f.take(ctx, c, m.Tasks)
		}
		f.mu.Unlock()
	}
}

// cancel cancels the tasks that a message names, and those of its job if it names one.
func (f *Front) cancel(ctx context.Context, c *client, m *headroomv1.PlaceCancel) {
	names := make([]attempt, 0, len(m.GetRefs()))
	for _, r := range m.GetRefs() {
		names = append(names, attemptOf(r))
	}
	if m.GetJob() != "" {
		for name := range c.flying {
			if name.job == m.GetJob() {
				names = append(names, name)
			}
		}
		for name := range c.ended {
			if name.job == m.GetJob() {
				names = append(names, name)
			}
		}
	}
	c.stop(ctx, names)
}

// take accepts tasks, and answers those that are known or cannot be accepted.
func (f *Front) take(ctx context.Context, c *client, m *headroomv1.PlaceTasks) {
	var tasks []*headroomv1.Task
	fresh := make(map[attempt]bool, len(m.GetTasks()))
	for _, t := range m.GetTasks() {
		name := attemptOf(t.GetRef())
		_, flies := c.flying[name]
		switch known := c.ended[name]; {
		case flies || fresh[name]:
		case known != nil:
			c.session.tell(known)
		case m.GetAgain(): // it was sent to an earlier process of this distributor, and may run
			c.lose(name, t.GetRef())
		default:
			fresh[name] = true
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return
	}
	var flight *Flight
	err := errUntaken
	if len(c.ended) < untakenMost {
		flight, err = f.submit(ctx, c, m.GetHigh(), tasks)
	}
	if err != nil {
		refused := &headroomv1.GroupRefused{Reason: err.Error()}
		for _, t := range tasks {
			refused.Refs = append(refused.Refs, t.GetRef())
		}
		c.session.refused = append(c.session.refused, refused)
		c.session.wake()
		return
	}
	for i, t := range tasks {
		c.flying[attemptOf(t.GetRef())] = flying{flight, i}
	}
	go f.follow(c, flight, tasks) // ends with the flight, or with the distributor
}

// submit submits tasks to the distributor, each for one attempt.
func (f *Front) submit(ctx context.Context, c *client, high bool, tasks []*headroomv1.Task) (*Flight, error) {
	return f.distributor.Submit(ctx, Job{Tasks: len(tasks), High: high, Task: func(index, attempt int) *headroomv1.Task {
		if attempt > 0 {
			return nil
		}
		return c.own(tasks[index])
	}})
}

// own returns a task with a name that no other client has.
func (c *client) own(t *headroomv1.Task) *headroomv1.Task {
	r := t.GetRef()
	return &headroomv1.Task{
		Ref: &headroomv1.TaskRef{Job: c.name + "/" + r.GetJob(), Phase: r.GetPhase(), Index: r.GetIndex(), Attempt: r.GetAttempt()}, Argv: t.GetArgv(),
		Output: t.GetOutput(), Env: t.GetEnv(), Dir: t.GetDir(), Submitter: t.GetSubmitter(),
	}
}

// lose reports that an attempt has no result and will have none.
func (c *client) lose(name attempt, ref *headroomv1.TaskRef) {
	c.finish(name, &headroomv1.GroupResults{Lost: []*headroomv1.TaskRef{ref}})
}

// finish stores a result for the client, and sends it.
func (c *client) finish(name attempt, r *headroomv1.GroupResults) {
	delete(c.flying, name)
	c.ended[name] = r
	c.session.tell(r)
}

// follow sends the results of a flight to its client.
func (f *Front) follow(c *client, flight *Flight, tasks []*headroomv1.Task) {
	for {
		select {
		case r, more := <-flight.Results():
			if !more {
				return
			}
			f.result(c, flight, tasks[r.Index].GetRef(), r)
		case <-f.distributor.ended:
			return
		}
	}
}

func (f *Front) result(c *client, flight *Flight, ref *headroomv1.TaskRef, r Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := attemptOf(ref)
	if c.flying[name].flight != flight {
		return // it was cancelled
	}
	if r.GetRef() == nil && r.GetError() == Lost {
		c.lose(name, ref)
		return
	}
	c.finish(name, &headroomv1.GroupResults{Results: []*headroomv1.TaskResult{{
		Ref: ref, ExitCode: r.GetExitCode(), Error: r.GetError(), Seconds: r.GetSeconds(), CpuSeconds: r.GetCpuSeconds(),
	}}})
}
