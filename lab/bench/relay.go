package bench

import (
	"context"
	"net"
	"net/http"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

// relay is what stands in a master's place to see what a master's decisions cost: it passes each message of its one distributor on to the
// next worker, and each of a worker's to the distributor. It decides nothing, keeps nothing and bounds nothing but by waiting.
type relay struct {
	tasks   chan *headroomv1.PlaceTasks
	results chan *headroomv1.TaskResults
	workers chan struct{} // one for each that has come
}

// relayRoom is how many messages may wait.
const relayRoom = 256

// relayWindow is how many tasks the distributor may have under way: all that the benchmark has.
const relayWindow = atOnce * dispatchJob

// serveRelay serves until ctx ends.
func serveRelay(ctx context.Context, l net.Listener) error {
	r := &relay{tasks: make(chan *headroomv1.PlaceTasks, relayRoom), results: make(chan *headroomv1.TaskResults, relayRoom), workers: make(chan struct{}, idleWorkers)}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewWorkerServiceHandler(r, rpc.HandlerOptions()...))
	mux.Handle(headroomv1connect.NewMasterServiceHandler(r, rpc.HandlerOptions()...))
	return rpc.Serve(ctx, l, mux)
}

// Work implements WorkerService.
func (r *relay) Work(ctx context.Context, st *connect.BidiStream[headroomv1.WorkerMessage, headroomv1.WorkMessage]) error {
	r.workers <- struct{}{}
	inbox, broken := rpc.Inbox(ctx, 1, st.Receive)
	for {
		select {
		case err := <-broken:
			return err
		case m := <-r.tasks:
			if err := st.Send(&headroomv1.WorkMessage{Message: &headroomv1.WorkMessage_Tasks{Tasks: &headroomv1.Tasks{Tasks: m.GetTasks()}}}); err != nil {
				return err
			}
		case m := <-inbox:
			if m.GetResults() != nil {
				r.results <- m.GetResults()
			}
		}
	}
}

// Place implements MasterService.
func (r *relay) Place(ctx context.Context, st *connect.BidiStream[headroomv1.PlaceMessage, headroomv1.GroupMessage]) error {
	for range idleWorkers {
		<-r.workers
	}
	const slots = idleWorkers * idleSlots
	state := &headroomv1.GroupState{Group: rackName, Master: "relay", Active: true, Workers: idleWorkers, Slots: slots, Usable: slots, Window: relayWindow, WindowHigh: relayWindow}
	if err := st.Send(&headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: state}}); err != nil {
		return err
	}
	inbox, broken := rpc.Inbox(ctx, relayRoom, st.Receive)
	for {
		select {
		case err := <-broken:
			return err
		case m := <-inbox:
			if m.GetTasks() != nil {
				r.tasks <- m.GetTasks()
			}
			if m.GetAlive() != nil { // and the window is as it was
				if err := st.Send(&headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_State{State: state}}); err != nil {
					return err
				}
			}
		case all := <-r.results:
			if err := st.Send(&headroomv1.GroupMessage{Message: &headroomv1.GroupMessage_Results{Results: &headroomv1.GroupResults{Results: all.GetResults()}}}); err != nil {
				return err
			}
		}
	}
}

// GetGroup implements MasterService.
func (r *relay) GetGroup(context.Context, *connect.Request[headroomv1.GetGroupRequest]) (*connect.Response[headroomv1.GetGroupResponse], error) {
	return connect.NewResponse(&headroomv1.GetGroupResponse{}), nil
}
