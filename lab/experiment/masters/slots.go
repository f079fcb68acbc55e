package masters

import (
	"context"
	"net"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

// slots serves workers of one slot each for node monitors: what a monitor starts runs on its worker.
type slots struct {
	address string
	// ended is called when a task has ended, and not by two goroutines for the same node at once.
	ended func(node string, r *headroomv1.TaskResult)

	mu      sync.Mutex
	streams map[string]chan *headroomv1.WorkMessage
	// given are the tasks that have not ended: a worker repeats results.
	given map[string]*headroomv1.Task
	stop  context.CancelFunc
	over  chan struct{}
}

// slotsRoom is how many messages may wait for a worker: it has one task at a time.
const slotsRoom = 4

// serveSlots serves on a free loopback port until closed.
func serveSlots(ended func(node string, r *headroomv1.TaskResult)) (*slots, error) {
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &slots{address: l.Addr().String(), ended: ended, streams: map[string]chan *headroomv1.WorkMessage{}, given: map[string]*headroomv1.Task{}, stop: cancel, over: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(s, rpc.HandlerOptions()...))
	go func(l net.Listener) {
		defer close(s.over)
		_ = rpc.Serve(ctx, l, mux)
	}(l)
	return s, nil
}

// Work implements WorkerService.
func (s *slots) Work(ctx context.Context, st *connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	node := first.GetHello().GetNode()
	// A worker takes the first message as the sign that its scheduler is there.
	if err := st.Send(&headroomv1.WorkMessage{}); err != nil {
		return err
	}
	out := make(chan *headroomv1.WorkMessage, slotsRoom)
	s.mu.Lock()
	s.streams[node] = out
	s.mu.Unlock()
	in, broken := rpc.Inbox(ctx, slotsRoom, st.Receive)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case m := <-out:
			if err := st.Send(m); err != nil {
				return err
			}
		case m := <-in:
			s.heard(node, m)
		}
	}
}

// heard takes a worker's message: results come alone or several at once, and may be repeated.
func (s *slots) heard(node string, m *headroomv1.WorkerMessage) {
	for _, r := range append(m.GetResults().GetResults(), m.GetResult()) {
		s.mu.Lock()
		is, was := r.GetRef(), s.given[node].GetRef()
		news := r != nil && was != nil && is.GetJob() == was.GetJob() && is.GetIndex() == was.GetIndex()
		if news {
			delete(s.given, node)
		}
		s.mu.Unlock()
		if news {
			s.ended(node, r)
		}
	}
}

func (s *slots) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

func (s *slots) start(node string, t *headroomv1.Task) {
	s.mu.Lock()
	out := s.streams[node]
	s.given[node] = t
	s.mu.Unlock()
	out <- &headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Task{Task: t}}
}

func (s *slots) close() {
	s.stop()
	<-s.over
}
