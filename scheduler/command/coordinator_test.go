package command

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

// coordinators is a double of a coordinator group: one job table, some servers,
// one of which leads.
type coordinators struct {
	addresses []string

	mu       sync.Mutex
	leader   int // -1: none
	revision uint64
	jobs     map[string]*headroomv1.Job
	order    []string
	requests map[string]uint64 // request id -> revision
	finishes map[string]int
	acks     []*headroomv1.DirectiveAck
	progress map[string]*headroomv1.JobProgress
	engines  map[string]*headroomv1.EngineReport
	streams  map[*directorStream]int // the server at its end
	changed  chan struct{}           // closed at a change of leader
	// refuseDrops makes DeflateJob refuse; reports counts the progress reports, last is the newest.
	refuseDrops bool
	reports     int
	last        *headroomv1.ProgressReport
	// commitThenFail makes CommitJob carry out and then answer with this error, once.
	commitThenFail error
}

type directorStream struct {
	out chan *headroomv1.DirectorMessage
}

// server is one of the coordinators.
type server struct {
	*coordinators
	headroomv1connect.UnimplementedJobServiceHandler
	index int
}

func startCoordinators(t *testing.T, n int) *coordinators {
	t.Helper()
	return startBehind(t, n, func(l net.Listener) net.Listener { return l })
}

// startSecure is a coordinator with a certificate; it returns its address.
func startSecure(t *testing.T, certs testkit.Certificates) string {
	t.Helper()
	k := testkit.Need(secure.Open(certs.Files(secure.Server, "c1")))(t)
	return startBehind(t, 1, func(l net.Listener) net.Listener { return rpc.SecureListener(l, k) }).addresses[0]
}

func startBehind(t *testing.T, n int, behind func(net.Listener) net.Listener) *coordinators {
	t.Helper()
	c := &coordinators{
		jobs: make(map[string]*headroomv1.Job), requests: make(map[string]uint64), finishes: make(map[string]int),
		engines:  make(map[string]*headroomv1.EngineReport),
		progress: make(map[string]*headroomv1.JobProgress), streams: make(map[*directorStream]int), changed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range n {
		l := testkit.Need(rpc.Listen("127.0.0.1:0"))(t)
		c.addresses = append(c.addresses, l.Addr().String())
		mux := http.NewServeMux()
		mux.Handle(headroomv1connect.NewJobServiceHandler(&server{coordinators: c, index: i}))
		running.Go(func() {
			if err := rpc.Serve(ctx, behind(l), mux); err != nil {
				t.Errorf("coordinator %d: %v", i, err)
			}
		})
	}
	return c
}

func (c *coordinators) lead(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = index
	close(c.changed)
	c.changed = make(chan struct{})
}

// notLeader is the refusal of a server that does not lead. The caller holds mu.
func (s *server) notLeader() error {
	switch {
	case s.leader == s.index:
		return nil
	case s.leader < 0:
		return rpc.NotLeader("", "")
	default:
		return rpc.NotLeader("c", s.addresses[s.leader])
	}
}

func (s *server) CommitJob(_ context.Context, req *connect.Request[headroomv1.CommitJobRequest]) (*connect.Response[headroomv1.CommitJobResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	id := req.Msg.GetChange().GetRequestId()
	if s.requests[id] == 0 {
		s.revision++
		s.requests[id] = s.revision
		j := req.Msg.GetJob()
		s.jobs[j.GetId()] = j
		s.order = append(s.order, j.GetId())
	}
	if err := s.commitThenFail; err != nil {
		s.commitThenFail = nil
		return nil, err
	}
	return connect.NewResponse(&headroomv1.CommitJobResponse{Revision: s.requests[id]}), nil
}

func (s *server) FinishJob(_ context.Context, req *connect.Request[headroomv1.FinishJobRequest]) (*connect.Response[headroomv1.FinishJobResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	j := s.jobs[req.Msg.GetId()]
	if j == nil {
		return nil, rpc.Refuse(connect.CodeNotFound, "not-found", cli.ExitFailed, "no such job", "coordinator job list")
	}
	s.finishes[j.GetId()]++
	s.revision++
	j.State, j.Outcome = req.Msg.GetState(), req.Msg.GetOutcome()
	j.Progress = &headroomv1.JobProgress{Tasks: req.Msg.GetTasks(), Done: req.Msg.GetDone(), RuntimeS: &req.Msg.RuntimeS}
	return connect.NewResponse(&headroomv1.FinishJobResponse{Revision: s.revision}), nil
}

// DropTasks takes what an early stop allows, as a coordinator does.
func (s *server) DropTasks(_ context.Context, req *connect.Request[headroomv1.DropTasksRequest]) (*connect.Response[headroomv1.DropTasksResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	j := s.jobs[req.Msg.GetId()]
	if j.GetStop() == nil {
		return nil, rpc.Refuse(connect.CodeFailedPrecondition, "no-stop", cli.ExitRefused, "no early stop in force", "coordinator job show")
	}
	s.revision++
	j.Dropped = req.Msg.GetTasks()
	return connect.NewResponse(&headroomv1.DropTasksResponse{Dropped: j.GetDropped(), Revision: s.revision}), nil
}

// RecordRun records a run, as a coordinator does.
func (s *server) RecordRun(_ context.Context, req *connect.Request[headroomv1.RecordRunRequest]) (*connect.Response[headroomv1.RecordRunResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	j := s.jobs[req.Msg.GetId()]
	if j == nil {
		return nil, rpc.Refuse(connect.CodeNotFound, "not-found", cli.ExitFailed, "no such job", "coordinator job list")
	}
	run := proto.CloneOf(req.Msg.GetRun())
	if drop := req.Msg.GetDrop(); len(drop) > 0 {
		if j.GetRun().GetNumber() != run.GetNumber() {
			return nil, rpc.Refuse(connect.CodeFailedPrecondition, "job", cli.ExitRefused, "another run is recorded", "coordinator job show")
		}
		run = proto.CloneOf(j.GetRun())
		run.Dropped = slices.Grow(run.GetDropped(), 1)
		for len(run.GetDropped()) < int(j.GetInputs().GetTasks()+7)/8 {
			run.Dropped = append(run.Dropped, 0)
		}
		for _, x := range drop {
			for i := x.GetFirst(); i <= x.GetLast(); i++ {
				run.Dropped[i/8] |= 1 << (i % 8)
			}
		}
	} else if j.GetRun().GetNumber() == run.GetNumber() && !run.GetOver() {
		run.Dropped = j.GetRun().GetDropped()
	}
	s.revision++
	j.Run = run
	return connect.NewResponse(&headroomv1.RecordRunResponse{Revision: s.revision}), nil
}

// DeflateJob takes a drop ratio that the job's floor leaves, as a coordinator does.
func (s *server) DeflateJob(_ context.Context, req *connect.Request[headroomv1.DeflateJobRequest]) (*connect.Response[headroomv1.DeflateJobResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	j := s.jobs[req.Msg.GetId()]
	if s.refuseDrops || req.Msg.GetTheta() > 1-j.GetFloor()+1e-9 {
		return nil, rpc.Refuse(connect.CodeFailedPrecondition, "floor", cli.ExitRefused, "the floor forbids it", "coordinator job show")
	}
	s.revision++
	j.Deflation = &headroomv1.Deflation{Theta: req.Msg.GetTheta(), Seed: req.Msg.GetSeed(), Reason: req.Msg.GetReason()}
	return connect.NewResponse(&headroomv1.DeflateJobResponse{Deflation: j.GetDeflation(), Revision: s.revision}), nil
}

func (s *server) ListJobs(context.Context, *connect.Request[headroomv1.ListJobsRequest]) (*connect.Response[headroomv1.ListJobsResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.notLeader(); err != nil {
		return nil, err
	}
	resp := &headroomv1.ListJobsResponse{}
	for _, id := range s.order {
		resp.Jobs = append(resp.Jobs, proto.CloneOf(s.jobs[id]))
	}
	return connect.NewResponse(resp), nil
}

// Direct tells who leads, passes directives down and keeps what comes up.
func (s *server) Direct(ctx context.Context, st *connect.BidiStream[headroomv1.SchedulerMessage, headroomv1.DirectorMessage]) error {
	d := &directorStream{out: make(chan *headroomv1.DirectorMessage, 16)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			m, err := st.Receive()
			if err != nil {
				return
			}
			s.hear(m)
		}
	}()
	for {
		s.mu.Lock()
		changed := s.changed
		l := &headroomv1.Leader{Self: s.leader == s.index}
		if s.leader >= 0 {
			l.Id, l.Address = "c", s.addresses[s.leader]
		}
		s.streams[d] = s.index
		s.mu.Unlock()
		if err := st.Send(&headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Leader{Leader: l}}); err != nil {
			return err
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return nil
			case <-over:
				s.mu.Lock()
				delete(s.streams, d)
				s.mu.Unlock()
				return nil
			case <-changed:
				again = false
			case m := <-d.out:
				if err := st.Send(m); err != nil {
					return err
				}
			}
		}
	}
}

func (c *coordinators) hear(m *headroomv1.SchedulerMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.GetMessage().(type) {
	case *headroomv1.SchedulerMessage_Ack:
		c.acks = append(c.acks, m.Ack)
	case *headroomv1.SchedulerMessage_Progress:
		c.reports, c.last = c.reports+1, m.Progress
		for _, j := range m.Progress.GetJobs() {
			c.progress[j.GetId()] = j
		}
		for _, e := range m.Progress.GetEngines() {
			c.engines[e.GetEngine()] = e
		}
	}
}

// direct sends a directive over the leader's streams and tells whether there is one.
func (c *coordinators) direct(d *headroomv1.Directive) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for st, index := range c.streams {
		if index == c.leader {
			st.out <- &headroomv1.DirectorMessage{Message: &headroomv1.DirectorMessage_Directive{Directive: d}}
			return true
		}
	}
	return false
}

// job is a copy of the committed job, or nil.
func (c *coordinators) job(id string) *headroomv1.Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	return proto.CloneOf(c.jobs[id])
}

func (c *coordinators) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs)
}

// ExplainJob says the same of every job.
func (s *server) ExplainJob(_ context.Context, r *connect.Request[headroomv1.ExplainJobRequest]) (*connect.Response[headroomv1.ExplainJobResponse], error) {
	move := &headroomv1.JobMove{Kind: headroomv1.MoveKind_MOVE_KIND_CAP, Reason: "bears its cap", Candidates: []*headroomv1.Candidate{{Kind: headroomv1.MoveKind_MOVE_KIND_COPY, Why: "no straggler"}}}
	return connect.NewResponse(&headroomv1.ExplainJobResponse{Job: &headroomv1.Job{Id: r.Msg.GetId(), Outlook: &headroomv1.JobOutlook{Move: move}}}), nil
}
