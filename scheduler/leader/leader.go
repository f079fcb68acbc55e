// Package leader finds the coordinators' leader and calls it, for the scheduler.
//
// The one idea: the coordinator that answered last is asked first, and a call follows the leader through elections. A
// call that may have been carried out is distinguished from one that certainly was not: only after the latter may the
// scheduler undo what it prepared.
//
// It never gives up during an election while the caller still has time.
package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
)

const (
	// tryWait bounds one call: a commit takes milliseconds, an election up to 3 s.
	tryWait = 3 * time.Second
	// tryLeast is the minimum time left to start a call.
	tryLeast = time.Second
	// retryWait is the wait between two rounds over the coordinators.
	retryWait = 200 * time.Millisecond
	// unreachableRounds is how often all coordinators are tried before a request is refused because none of them
	// accepts a connection.
	unreachableRounds = 3
)

// Client finds the coordinators' leader and calls it. It is safe for concurrent use.
type Client struct {
	seeds []string
	// peers connects to coordinators.
	peers rpc.Peers
	// epoch is that of the scheduler's lease, which every request carries.
	epoch func() uint64

	mu sync.Mutex
	// Invariant: current is never empty.
	current string
	turn    int // index of the seed to try next
}

// New returns a client that starts with the seeds, addresses of coordinators.
func New(seeds []string, peers rpc.Peers) *Client {
	return &Client{seeds: seeds, peers: peers, current: seeds[0]}
}

// Under returns the client for requests of the active scheduler, whose lease has an epoch.
func (l *Client) Under(epoch func() uint64) *Client {
	l.epoch = epoch
	return l
}

// Address returns the coordinator to use now.
func (l *Client) Address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// Follow makes address the leader's.
func (l *Client) Follow(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = address
}

// Leave moves from address to the next seed, unless another caller has moved on already.
func (l *Client) Leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == address {
		l.current = l.seeds[l.turn%len(l.seeds)]
		l.turn++
		if l.current == address && len(l.seeds) > 1 {
			l.current = l.seeds[l.turn%len(l.seeds)]
			l.turn++
		}
	}
}

// Jobs returns the job service of the coordinator at address.
func (l *Client) Jobs(address string) headroomv1connect.JobServiceClient {
	options := l.peers.Options()
	if l.epoch != nil {
		options = append(slices.Clip(options), connect.WithInterceptors(rpc.Headers(func(h http.Header) { rpc.SetSchedulerEpoch(h, l.epoch()) })))
	}
	return headroomv1connect.NewJobServiceClient(l.peers.HTTP(), l.peers.URL(address), options...)
}

// Call makes one call at the leader and follows it through elections, until try succeeds, is refused permanently, or
// ctx ends. try must be safe to repeat. The error is meant for an operator: exit 3 if nothing was carried out, 7 if it
// may have been.
func (l *Client) Call(ctx context.Context, doing string, try func(context.Context, headroomv1connect.JobServiceClient) error) error {
	var unsure error  // the last failure after which the command may have been carried out
	answered := false // a coordinator answers: there may be an election
	for failed := 1; ; failed++ {
		address := l.Address()
		tryCtx, cancel := context.WithTimeout(ctx, tryWait)
		err := try(tryCtx, l.Jobs(address))
		cancel()
		if err == nil {
			return nil
		}
		if !l.moveOn(address, err) {
			return rpc.AsCLI(err, doing, address)
		}
		if maybeDone(err) {
			unsure = err
		}
		answered = answered || !rpc.NotSent(err)
		hopeless := !answered && failed >= unreachableRounds*len(l.seeds)
		if hopeless || !timeLeft(ctx) || !pause.For(ctx, retryWait) {
			return l.unreachable(doing, err, unsure)
		}
	}
}

// Ask sends a request to the leader as Call does, and returns the answer; nil after an error.
func Ask[Q, A any](ctx context.Context, l *Client, doing string, method func(headroomv1connect.JobServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (answer *A, err error) {
	err = l.Call(ctx, doing, func(ctx context.Context, c headroomv1connect.JobServiceClient) error {
		resp, err := method(c, ctx, connect.NewRequest(q))
		if err == nil {
			answer = resp.Msg
		}
		return err
	})
	return answer, err
}

// moveOn chooses the next coordinator after err; false means that a retry does not help.
func (l *Client) moveOn(address string, err error) bool {
	if next, ok := rpc.LeaderOf(err); ok {
		if next == "" {
			l.Leave(address)
		} else {
			l.Follow(next)
		}
		return true
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal:
		l.Leave(address)
		return true
	default:
		return false
	}
}

// maybeDone reports whether the command of a failed call may have been carried out.
func maybeDone(err error) bool {
	if _, ok := rpc.LeaderOf(err); ok {
		return false
	}
	return !rpc.NotSent(err) && rpc.AsCLI(err, "", "").Exit != cli.ExitUnreachable
}

func (l *Client) unreachable(doing string, err, unsure error) error {
	asked := "asked " + strings.Join(l.seeds, ", ")
	if unsure != nil {
		return &cli.Error{
			Code: "unknown", Exit: cli.ExitUnknown, Err: unsure,
			Message: fmt.Sprintf("%s: no coordinator confirmed it (%s): %v", doing, asked, unsure),
			Hint:    "outcome unknown; retry with the same --request-id",
		}
	}
	if _, ok := rpc.LeaderOf(err); ok {
		return &cli.Error{
			Code: "no-leader", Exit: cli.ExitUnreachable, Err: err,
			Message: fmt.Sprintf("%s: the coordinators have no leader (%s)", doing, asked),
			Hint:    "nothing was changed; a majority of the coordinators must run and reach each other",
		}
	}
	return &cli.Error{
		Code: "unreachable", Exit: cli.ExitUnreachable, Err: err,
		Message: fmt.Sprintf("%s: no coordinator reachable (%s)", doing, asked),
		Hint:    "nothing was changed; check that the coordinators are running and that coordinators in scheduler.yaml is right",
	}
}

// timeLeft reports whether another call can be made: the result of an interrupted one is unknown.
func timeLeft(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	return !bounded || time.Until(end) > retryWait+tryLeast
}

// Settled reports whether an error of the coordinators is final: a retry will not change it.
func Settled(err error) bool {
	e, ok := errors.AsType[*cli.Error](err)
	return ok && e.Exit != cli.ExitUnreachable && e.Exit != cli.ExitUnknown
}
