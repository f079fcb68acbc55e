package scheduler

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/jobs/dispatch"
	"headroom/scheduler/access"
	"headroom/scheduler/local"
)

const (
	// takeoverAfter is the silence after which a new stream of a node replaces the previous one: workers send a message
	// every second.
	takeoverAfter = 2 * time.Second
	// outboxMax bounds the messages that wait for a worker that does not read.
	outboxMax = 1024
	// leaveWait bounds the report to the loop after a request is over.
	leaveWait = time.Second
)

// session is one stream of a worker. The loop owns heard and controls; the loop writes out and the stream's handler reads it.
type session struct {
	node  string
	out   chan *headroomv1.WorkMessage
	heard time.Time
	// controls are what the worker can do with its tasks, nil while unknown.
	controls *headroomv1.TaskControls
	over     chan struct{}
	// denied requests that denials are sent.
	denied chan struct{}
	once   sync.Once
}

func newSession(node string) *session {
	return &session{node: node, out: make(chan *headroomv1.WorkMessage, outboxMax), over: make(chan struct{}), denied: make(chan struct{}, 1)}
}

// end makes the stream's handler return.
func (s *session) end() { s.once.Do(func() { close(s.over) }) }

// workers serves WorkerService.
type workers struct{ *Server }

type workStream = connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]

// Work serves the stream of one worker.
func (w *workers) Work(ctx context.Context, st *workStream) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if err := access.CheckHello(access.CallerOf(ctx), hello); err != nil {
		return err
	}
	s := newSession(hello.GetNode())
	reply := make(chan error, 1)
	given, others := w.prover.sort(s.node, hello.GetRunning())
	e := helloEvent{session: s, slots: int(hello.GetSlots()), running: given, others: others, reply: reply}
	refused, err := ask(ctx, w.inbox, e, reply)
	if err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	// The receiver ends when this handler has returned, which closes the request.
	go w.receive(ctx, st, s)
	return w.transmit(ctx, st, s)
}

// transmit sends the loop's messages to the worker until the session is over.
func (w *workers) transmit(ctx context.Context, st *workStream, s *session) error {
	defer s.end()
	s.denied <- struct{}{} // its buffer holds one
	defer w.guard.Listen(s.denied)()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.over:
			return nil
		case m := <-s.out:
			if err := st.Send(m); err != nil {
				w.leave(ctx, s, false)
				return err
			}
		case <-s.denied:
			for _, part := range rpc.DenialMessages(w.guard.Denials.All(), secure.Scheduler, secure.Master) {
				if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Denied{Denied: part}}); err != nil {
					w.leave(ctx, s, false)
					return err
				}
			}
		}
	}
}

// receive forwards the worker's messages until the stream ends.
func (w *workers) receive(ctx context.Context, st *workStream, s *session) {
	for {
		m, err := st.Receive()
		if err != nil {
			w.leave(ctx, s, errors.Is(err, io.EOF))
			return
		}
		if w.pass(ctx, s, m) != nil {
			return
		}
	}
}

func (w *workers) pass(ctx context.Context, s *session, m *headroomv1.WorkerMessage) error {
	switch m := m.GetMessage().(type) {
	case *headroomv1.WorkerMessage_Alive:
		e := aliveEvent{session: s, controls: m.Alive.GetControls(), used: make(map[dispatch.Ref]float64)}
		for _, u := range m.Alive.GetRunning() {
			if ref, given := w.prover.verify(s.node, u.GetRef()); given {
				e.used[ref] = u.GetCpuSeconds()
			}
		}
		return w.inbox.post(ctx, e)
	case *headroomv1.WorkerMessage_Result:
		ref, given := w.prover.verify(s.node, m.Result.GetRef())
		if !given {
			return nil // the worker was never given such an attempt
		}
		return w.inbox.post(ctx, resultEvent{s, ref, local.Failure(m.Result), m.Result.GetError() == local.Stopped, m.Result.GetCpuSeconds()})
	default:
		return nil
	}
}

// leave reports to the loop that the stream ended. It does not use the request's context, which may have ended.
func (w *workers) leave(ctx context.Context, s *session, goodbye bool) {
	_ = w.inbox.postAnyway(ctx, leaveEvent{s, goodbye}) // fails only if the loop has ended
	s.end()
}
