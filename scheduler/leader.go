package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	// tryLeast is the time that a call must have to be begun at all.
	tryLeast = time.Second
	// retryWait is the wait between two rounds over the coordinators.
	retryWait = 200 * time.Millisecond
	// unreachableRounds is how often all coordinators are tried before a request
	// is refused when not one of them can be connected to.
	unreachableRounds = 3
)

// leader finds the coordinators' leader and calls it. It is safe for concurrent use.
type leader struct {
	seeds []string
	peers rpc.Peers

	mu sync.Mutex
	// Invariant: current is never empty.
	current string
	turn    int // index of the seed to try next
}

func newLeader(seeds []string, peers rpc.Peers) *leader {
	return &leader{seeds: seeds, peers: peers, current: seeds[0]}
}

// address is the coordinator to talk to now.
func (l *leader) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// follow takes address for the leader's.
func (l *leader) follow(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = address
}

// leave gives up on address and goes to the next seed, unless somebody else has
// moved on already.
func (l *leader) leave(address string) {
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

func (l *leader) client(address string) headroomv1connect.JobServiceClient {
	return headroomv1connect.NewJobServiceClient(l.peers.HTTP(), l.peers.URL(address), l.peers.Options()...)
}

// call makes one call at the leader and follows it wherever it goes, until try
// succeeds, is refused for good, or ctx ends. try must be safe to repeat.
// The error is ready for an operator: exit 3 when nothing was carried out, 7
// when it may have been.
func (l *leader) call(ctx context.Context, doing string, try func(context.Context, headroomv1connect.JobServiceClient) error) error {
	var unsure error  // the last failure after which the command may have been carried out
	answered := false // somebody is there: an election may be all that is missing
	for failed := 1; ; failed++ {
		address := l.address()
		tryCtx, cancel := context.WithTimeout(ctx, tryWait)
		err := try(tryCtx, l.client(address))
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
		answered = answered || !isDial(err)
		hopeless := !answered && failed >= unreachableRounds*len(l.seeds)
		if hopeless || !timeLeft(ctx) || !pause.For(ctx, retryWait) {
			return l.unreachable(doing, err, unsure)
		}
	}
}

// moveOn chooses whom to ask after err; false says that asking again is no use.
func (l *leader) moveOn(address string, err error) bool {
	if next, ok := rpc.LeaderOf(err); ok {
		if next == "" {
			l.leave(address)
		} else {
			l.follow(next)
		}
		return true
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown, connect.CodeInternal:
		l.leave(address)
		return true
	default:
		return false
	}
}

// maybeDone tells whether the command of a failed call may have been carried out.
func maybeDone(err error) bool {
	if _, ok := rpc.LeaderOf(err); ok {
		return false
	}
	return !isDial(err) && rpc.AsCLI(err, "", "").Exit != cli.ExitUnreachable
}

// isDial tells whether no connection came about, so that nothing was sent.
func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func (l *leader) unreachable(doing string, err, unsure error) error {
	asked := "asked " + strings.Join(l.seeds, ", ")
	if unsure != nil {
		return &cli.Error{
			Code: "unknown", Exit: cli.ExitUnknown, Err: unsure,
			Message: fmt.Sprintf("%s: no coordinator confirmed it (%s): %v", doing, asked, unsure),
			Hint:    "the outcome is unknown; repeat it with the same --request-id",
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
		Message: fmt.Sprintf("%s: no coordinator answers (%s)", doing, asked),
		Hint:    "nothing was changed; check that coordinators run and that scheduler.yaml names one of them",
	}
}

// timeLeft tells whether another call can be made: one that is cut short leaves
// its outcome unknown.
func timeLeft(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	return !bounded || time.Until(end) > retryWait+tryLeast
}

// refusal is err for the scheduler's own callers: the same two lines and exit code.
func refusal(err error, doing string) error {
	e := rpc.AsCLI(err, doing, "the coordinators")
	return rpc.Refuse(codeFor(e.Exit), e.Code, e.Exit, e.Error(), e.Hint)
}

// codeFor is the Connect code that goes with an exit code.
func codeFor(exit int) connect.Code {
	switch exit {
	case cli.ExitUsage:
		return connect.CodeInvalidArgument
	case cli.ExitUnreachable:
		return connect.CodeUnavailable
	case cli.ExitDenied:
		return connect.CodePermissionDenied
	case cli.ExitConflict:
		return connect.CodeAlreadyExists
	case cli.ExitRefused:
		return connect.CodeFailedPrecondition
	case cli.ExitUnknown:
		return connect.CodeDeadlineExceeded
	default:
		return connect.CodeUnknown
	}
}

// settled tells whether an error of the coordinators is final: repeating the
// same command will not change it.
func settled(err error) bool {
	e, ok := errors.AsType[*cli.Error](err)
	return ok && e.Exit != cli.ExitUnreachable && e.Exit != cli.ExitUnknown
}
