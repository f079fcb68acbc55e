package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// Refuse returns the error of a refused request. short is its stable code
// ("infeasible"), exit the exit code of the command line, message the cause and
// hint the way out, one sentence each.
func Refuse(code connect.Code, short string, exit int, message, hint string) *connect.Error {
	e := connect.NewError(code, errors.New(message))
	if d, err := connect.NewErrorDetail(&headroomv1.Refusal{Code: short, Exit: int32(exit), Hint: hint}); err == nil {
		e.AddDetail(d)
	}
	return e
}

// NotLeader returns the error of a server that is not the leader. id and address name
// the leader; both are empty while there is none.
func NotLeader(id, address string) *connect.Error {
	message, hint := "this server is not the leader; the leader is "+id+" at "+address, "use --addr "+address
	short := "not-leader"
	if address == "" {
		short, message, hint = "no-leader", "no leader", noLeaderHint
	}
	e := Refuse(connect.CodeUnavailable, short, cli.ExitUnreachable, message, hint)
	if d, err := connect.NewErrorDetail(&headroomv1.NotLeader{LeaderId: id, LeaderAddress: address}); err == nil {
		e.AddDetail(d)
	}
	return e
}

// Standby returns the error of a scheduler that is not the active one. name and address are those
// of the active one; both are empty while it is unknown. LeaderOf returns the address.
func Standby(name, address string) *connect.Error {
	message, hint := "this scheduler is on standby; the active one is "+name+" at "+address, "use --addr "+address
	if address == "" {
		message = "no scheduler is active yet; this one has not yet read its jobs from the coordinators"
		hint = "nothing was changed; check that the coordinators have a leader and that coordinators in scheduler.yaml is right"
	}
	e := Refuse(connect.CodeUnavailable, "standby", cli.ExitUnreachable, message, hint)
	if d, err := connect.NewErrorDetail(&headroomv1.NotLeader{LeaderId: name, LeaderAddress: address}); err == nil {
		e.AddDetail(d)
	}
	return e
}

// schedulerEpoch is the header of the epoch of the scheduler's lease: of who asks, or who answers.
const schedulerEpoch = "Headroom-Scheduler-Epoch"

// SetSchedulerEpoch puts the epoch of the scheduler's lease into a header; 0 is none.
func SetSchedulerEpoch(h http.Header, epoch uint64) {
	if epoch != 0 {
		h.Set(schedulerEpoch, strconv.FormatUint(epoch, 10))
	}
}

// SchedulerEpoch returns the epoch of the scheduler's lease in a header; 0 for none.
func SchedulerEpoch(h http.Header) uint64 {
	epoch, err := strconv.ParseUint(h.Get(schedulerEpoch), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

// noLeaderHint is the way out while there is no leader.
const noLeaderHint = "a majority of the servers must run and reach each other; --stale reads without a leader"

// LeaderOf returns the leader's RPC address that a NotLeader error carries. ok reports
// whether err is such an error; the address is empty while there is no leader.
func LeaderOf(err error) (address string, ok bool) {
	d := detail[*headroomv1.NotLeader](err)
	return d.GetLeaderAddress(), d != nil
}

// detail returns the first detail of type T in err, or nil.
func detail[T comparable](err error) T {
	var none T
	e, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return none
	}
	for _, d := range e.Details() {
		m, err := d.Value()
		if err != nil {
			continue
		}
		if found, ok := any(m).(T); ok {
			return found
		}
	}
	return none
}

// AsCLI returns the two-line error for the result of a call to addr; doing names the
// command ("budget set"). A nil err gives nil: test err before, a nil *cli.Error
// in an error variable is not nil. Without a Refusal detail the exit code follows
// from where the call ended: nothing sent is 3, sent and not answered is 7.
func AsCLI(err error, doing, addr string) *cli.Error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*cli.Error](err); ok {
		return own
	}
	if none, ok := errors.AsType[*NoLeaderError](err); ok {
		return noLeader(none, doing)
	}
	if r := detail[*headroomv1.Refusal](err); r != nil {
		return refusal(err, r)
	}
	e := &cli.Error{Err: err}
	switch {
	case errors.Is(err, context.Canceled):
		e.Code, e.Exit, e.Message = "interrupted", cli.ExitInterrupted, doing+": interrupted"
		e.Hint = "a change may have been made; check before you repeat it"
	case NotSent(err):
		e.Code, e.Exit, e.Message = "unreachable", cli.ExitUnreachable, fmt.Sprintf("%s: cannot reach %s: %s", doing, addr, cause(err))
		e.Hint = "check that the server runs and listens there, or use --addr for another one"
	case refusedHandshake(err):
		e.Code, e.Exit, e.Message = "unauthenticated", cli.ExitDenied, fmt.Sprintf("%s: TLS handshake with %s failed, nothing was sent: %s", doing, addr, message(err))
		e.Hint = "the certificate must be valid and of this cluster's authority; coordinator tls inspect shows it"
	case sentWithoutAnswer(err):
		e.Code, e.Exit, e.Message = "unknown", cli.ExitUnknown, fmt.Sprintf("%s: %s did not answer: %s", doing, addr, cause(err))
		e.Hint = "the outcome is unknown; it is safe to retry a change with the same --request-id"
	case connect.CodeOf(err) == connect.CodeInvalidArgument && !connect.IsWireError(err): // no server said so
		e.Code, e.Exit, e.Message = "unknown", cli.ExitUnknown, fmt.Sprintf("%s: the answer of %s cannot be read: %s", doing, addr, message(err))
		e.Hint = "the outcome is unknown; check that the server is of this version and that nothing between changes its answers"
	default:
		byCode(e, err, doing)
	}
	return e
}

// noLeader is the error of a command that found no leader at several addresses.
func noLeader(none *NoLeaderError, doing string) *cli.Error {
	e := &cli.Error{Code: "no-leader", Exit: cli.ExitUnreachable, Message: doing + ": " + none.Error(), Hint: noLeaderHint, Err: none}
	if none.Answered() == "" {
		e.Code, e.Hint = "unreachable", "start the servers, or use --addr for other ones"
	}
	return e
}

func refusal(err error, r *headroomv1.Refusal) *cli.Error {
	e := &cli.Error{Code: r.GetCode(), Exit: int(r.GetExit()), Message: message(err), Hint: r.GetHint(), Err: err}
	if e.Exit == cli.ExitOK {
		e.Exit = cli.ExitFailed
	}
	return e
}

// NotSent reports whether no connection was made, so that nothing can have happened.
func NotSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// refusedHandshake reports whether one side refused the other's certificate: the server
// reads no request before it has accepted the client's.
func refusedHandshake(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return true
	}
	_, ok := errors.AsType[handshakeError](err)
	return ok
}

// sentWithoutAnswer reports whether the request may have reached the server. Connect
// calls it "canceled" when the server hung up while the request was being written.
func sentWithoutAnswer(err error) bool {
	code := connect.CodeOf(err)
	if code == connect.CodeDeadlineExceeded || code == connect.CodeCanceled || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return code == connect.CodeUnavailable && !connect.IsWireError(err)
}

// byCode sets code, exit code and hint for an error without a Refusal.
func byCode(e *cli.Error, err error, doing string) {
	e.Message = doing + ": " + message(err)
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable:
		e.Code, e.Exit, e.Hint = "unavailable", cli.ExitUnreachable, "retry in a moment"
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		e.Code, e.Exit, e.Hint = "denied", cli.ExitDenied, "use an identity with a role that allows this"
	case connect.CodeAlreadyExists, connect.CodeAborted:
		e.Code, e.Exit, e.Hint = "conflict", cli.ExitConflict, "check the present state and retry"
	case connect.CodeFailedPrecondition:
		e.Code, e.Exit = "refused", cli.ExitRefused
	case connect.CodeInvalidArgument:
		e.Code, e.Exit = "usage", cli.ExitUsage
	case connect.CodeUnimplemented:
		e.Code, e.Exit, e.Hint = "unimplemented", cli.ExitFailed, "the server may be of another version, or of another kind"
	default:
		e.Code, e.Exit = connect.CodeOf(err).String(), cli.ExitFailed
	}
}

// message returns the server's text without Connect's code.
func message(err error) string {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e.Message()
	}
	return err.Error()
}

// cause returns a short text for why a connection failed.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "deadline exceeded"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "timed out"
	}
	return message(err)
}
