package master

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

const (
	// bytesAtOnce bounds a message with several tasks or results; one alone may be longer.
	bytesAtOnce = rpc.MaxMessage / 8
	// itemsAtOnce bounds how many are in it.
	itemsAtOnce = 512
)

// workItem is a task to begin or an attempt to stop.
type workItem struct {
	task *headroomv1.Task
	kill *headroomv1.TaskRef
}

// workSession is one stream of a worker.
type workSession struct {
	*line

	node   string
	box    mailbox[workItem]
	denied chan struct{} // requests sending the denials
}

func newWorkSession(node string, w *http.ResponseController) *workSession {
	return &workSession{line: newLine(w), node: node, box: newMailbox[workItem](), denied: make(chan struct{}, 1)}
}

func (s *workSession) put(items ...workItem) { s.box.put(items...) }

// placeItem is something for a distributor: a result, a lost or refused attempt, or the state.
type placeItem struct {
	result  *headroomv1.TaskResult
	lost    *headroomv1.TaskRef
	refused *headroomv1.TaskRef
	reason  string
	state   *headroomv1.GroupState
}

// placeSession is one stream of a distributor.
type placeSession struct {
	*line

	name        string
	incarnation uint64
	epoch       uint64 // of the scheduler's lease; 0 for none
	box         mailbox[placeItem]
}

func newPlaceSession(name string, incarnation uint64, w *http.ResponseController) *placeSession {
	return &placeSession{line: newLine(w), name: name, incarnation: incarnation, box: newMailbox[placeItem]()}
}

func (s *placeSession) put(items ...placeItem) { s.box.put(items...) }

type (
	workStream  = connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]
	placeStream = connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]
)

// transmit sends what the owner has for the worker until the session is over.
func (m *Master) transmit(ctx context.Context, st *workStream, s *workSession) error {
	defer s.leave()
	s.denied <- struct{}{} // it has room for one
	defer m.cfg.Guard.Listen(s.denied)()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.over:
			return s.why
		case <-s.box.ready:
			items := s.box.take(time.Now())
			if err := sendWork(st, items); err != nil {
				return err
			}
			s.box.sent(items)
		case <-s.denied:
			for _, part := range rpc.DenialMessages(m.cfg.Guard.Denials.All(), secure.Scheduler, secure.Master) {
				if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Denied{Denied: part}}); err != nil {
					return err
				}
			}
		}
	}
}

// sendWork sends tasks together as far as nothing stands between them.
func sendWork(st *workStream, items []workItem) error {
	for at := 0; at < len(items); {
		if kill := items[at].kill; kill != nil {
			if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Kill{Kill: kill}}); err != nil {
				return err
			}
			at++
			continue
		}
		tasks := &headroomv1.Tasks{}
		for size := 0; at < len(items) && items[at].task != nil && len(tasks.Tasks) < itemsAtOnce; at++ {
			if size += sizeOf(items[at].task); size > bytesAtOnce && len(tasks.Tasks) > 0 {
				break
			}
			tasks.Tasks = append(tasks.Tasks, items[at].task)
		}
		if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Tasks{Tasks: tasks}}); err != nil {
			return err
		}
	}
	return nil
}

// sizeOf returns about how long a task is as a message.
func sizeOf(t *headroomv1.Task) int {
	size := len(t.GetOutput()) + len(t.GetDir()) + 128
	for _, s := range t.GetArgv() {
		size += len(s) + 4
	}
	for _, s := range t.GetEnv() {
		size += len(s) + 4
	}
	return size
}

// receive passes on a worker's messages until its stream ends.
func (m *Master) receive(ctx context.Context, st *workStream, s *workSession) {
	for {
		x, err := st.Receive()
		if err != nil {
			goodbye := errors.Is(err, io.EOF)
			m.postAnyway(ctx, func(g *group) { g.away(time.Now(), s, goodbye) })
			s.end(nil)
			return
		}
		var results []*headroomv1.TaskResult
		switch x := x.GetMessage().(type) {
		case *headroomv1.WorkerMessage_Result:
			results = []*headroomv1.TaskResult{x.Result}
		case *headroomv1.WorkerMessage_Results:
			results = x.Results.GetResults()
		}
		if m.post(ctx, func(g *group) { g.ended(time.Now(), s, results) }) != nil {
			return
		}
	}
}

// transmitTo sends what the owner has for a distributor until the session is over.
func (m *Master) transmitTo(ctx context.Context, st *placeStream, s *placeSession) error {
	defer s.leave()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.over:
			return s.why
		case <-s.box.ready:
			items := s.box.take(time.Now())
			for _, x := range gather(items) {
				if err := st.Send(x); err != nil {
					return err
				}
			}
			s.box.sent(items)
		}
	}
}

// gather makes messages of items: results together, and only the newest state, last.
func gather(items []placeItem) (messages []*headroomv1.GroupMessage) {
	var results *headroomv1.GroupResults
	var refused *headroomv1.GroupRefused
	var state *headroomv1.GroupState
	size := 0
	for _, x := range items {
		switch {
		case x.state != nil:
			state = x.state
		case x.refused != nil:
			if refused == nil || refused.GetReason() != x.reason || len(refused.GetRefs()) >= itemsAtOnce {
				refused = &headroomv1.GroupRefused{Reason: x.reason}
				messages = append(messages, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Refused{Refused: refused}})
			}
			refused.Refs = append(refused.Refs, x.refused)
		default:
			size += len(x.result.GetError())
			if results == nil || len(results.GetResults())+len(results.GetLost()) >= itemsAtOnce || size > bytesAtOnce {
				results, size = &headroomv1.GroupResults{}, len(x.result.GetError())
				messages = append(messages, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: results}})
			}
			if x.result != nil {
				results.Results = append(results.Results, x.result)
			} else {
				results.Lost = append(results.Lost, x.lost)
			}
		}
	}
	if state != nil {
		messages = append(messages, &headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: state}})
	}
	return messages
}

// receiveFrom passes on a distributor's messages until its stream ends.
func (m *Master) receiveFrom(ctx context.Context, st *placeStream, s *placeSession) {
	for {
		x, err := st.Receive()
		if err != nil {
			m.postAnyway(ctx, func(g *group) { g.part(time.Now(), s) })
			s.end(nil)
			return
		}
		if m.post(ctx, func(g *group) { g.told(time.Now(), s, x) }) != nil {
			return
		}
	}
}

// told handles a message of a distributor.
func (g *group) told(now time.Time, s *placeSession, x *headroomv1.PlaceMessage) {
	switch x := x.GetMessage().(type) {
	case *headroomv1.PlaceMessage_Tasks:
		g.place(now, s, x.Tasks)
	case *headroomv1.PlaceMessage_Taken:
		g.taken(now, s, x.Taken.GetRefs())
	case *headroomv1.PlaceMessage_Cancel:
		g.cancel(now, s, x.Cancel)
	case *headroomv1.PlaceMessage_Alive:
		g.of(s, now)
	}
}
