package agent

import (
	"time"

	"connectrpc.com/connect"

	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// waiter is a call that waits for the answer to a heartbeat.
type waiter struct {
	beat   uint64
	until  time.Duration
	answer chan<- reply[struct{}]
}

// renewWait bounds waiting for the answer to one heartbeat.
const renewWait = 3 * time.Second

// renew sends a heartbeat at once; the answer comes with the leader's.
func (x *exchange) renew(answer chan<- reply[struct{}]) {
	if x.streams.Leader() == nil {
		settle(answer, reply[struct{}]{err: rpc.Refuse(connect.CodeUnavailable, "no-leader", cli.ExitUnreachable,
			"no leader reachable", "see powerd lease show and coordinator status")})
		return
	}
	x.heartbeat()
	x.waiting = append(x.waiting, &waiter{beat: x.lease.Beats(), until: instant().Boot + renewWait, answer: answer})
}

// answerWaiters ends the calls whose heartbeat was answered, or that waited too long.
func (x *exchange) answerWaiters(now time.Duration) {
	left := x.waiting[:0]
	for _, w := range x.waiting {
		switch {
		case x.lease.AnsweredBeat() >= w.beat:
			x.publish(instant())
			settle(w.answer, reply[struct{}]{})
		case now > w.until:
			settle(w.answer, reply[struct{}]{err: rpc.Refuse(connect.CodeDeadlineExceeded, "timeout", cli.ExitUnknown,
				"heartbeat sent, no answer from the leader in time", "see powerd lease show")})
		default:
			left = append(left, w)
		}
	}
	clear(x.waiting[len(left):])
	x.waiting = left
}

// settle answers a waiting call. The channel has room: each call is answered once.
func settle[T any](to chan<- reply[T], r reply[T]) {
	select {
	case to <- r:
	default:
	}
}
