package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/units"
)

// localMost bounds how long an operator's own limit stands: longer is a matter
// for the configuration.
const localMost = 24 * time.Hour

// localCeiling is a frequency ceiling that an operator set on this node.
type localCeiling struct {
	freq   units.Freq
	until  time.Duration
	change *headroomv1.Change
	wanted *ceilingCall // waits until what it changes has been saved
}

func (l localCeiling) at(now time.Duration) units.Freq {
	if now >= l.until {
		return 0
	}
	return l.freq
}

// ceilingCall is a ceiling that an operator asks for.
type ceilingCall struct {
	freq   units.Freq
	length time.Duration
	change *headroomv1.Change
	until  time.Duration // the call gives up
	answer chan reply[[]int64]
}

// reply is a value or why there is none.
type reply[T any] struct {
	value T
	err   error
}

// owned runs do on the owner goroutine and waits for its answer.
func owned[T any](ctx context.Context, n *node, do func(context.Context, chan<- reply[T])) (T, error) {
	answer := make(chan reply[T], 1)
	var none T
	select {
	case n.calls <- func(inner context.Context) { do(inner, answer) }:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// localRefused is a refusal of an operator's own limit.
func localRefused(short, message, hint string) error {
	return rpc.Refuse(connect.CodeFailedPrecondition, short, cli.ExitRefused, message, hint)
}

func badLocal(message, hint string) error {
	return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, message, hint)
}

// lengthOf bounds how long an operator's own limit is to stand.
func lengthOf(ms int64) (time.Duration, error) {
	if ms <= 0 || ms > localMost.Milliseconds() {
		return 0, badLocal("it needs an end: more than 0 and at most 24h", "for example --for 30m; for good, change powerd.yaml or ask the coordinator")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// setLocal caps this node below its lease.
func (n *node) setLocal(p units.Power, length time.Duration, change *headroomv1.Change) (units.Power, error) {
	base, _ := n.lease.Cap()
	switch {
	case n.mode != holding:
		return 0, localRefused("observing", "this node holds no cap: it only observes", "see powerd status for why; enforce: true in powerd.yaml lets it hold caps")
	case p > base:
		return 0, localRefused("above-cap", fmt.Sprintf("%v is above the cap of %v that the node may use", p, base), "a local limit only lowers; ask the coordinator for more")
	case p < n.cfg.Power.Floor:
		return 0, localRefused("below-floor", fmt.Sprintf("%v is below %v, the least that the node can hold (power.floor)", p, n.cfg.Power.Floor), "ask for more")
	}
	now := instant()
	n.lease.SetLocal(p, now.Boot+length)
	n.caps.local = change
	n.log.Info("local limit set", slog.Float64("cap_w", p.Watts()), slog.Duration("for", length),
		slog.String("actor", change.GetActor()), slog.String("reason", change.GetReason()))
	n.turn(now)
	n.publish(now)
	return n.caps.now, nil
}

// clearLocal ends a local limit.
func (n *node) clearLocal(change *headroomv1.Change) bool {
	now := instant()
	was := n.lease.Local(now.Boot) > 0
	n.lease.SetLocal(0, 0)
	if was {
		n.log.Info("local limit cleared", slog.String("actor", change.GetActor()), slog.String("reason", change.GetReason()))
		n.turn(now)
		n.publish(now)
	}
	return was
}

// setCeiling bounds the frequency, once what it changes has been saved.
func (n *node) setCeiling(c *ceilingCall) {
	f := n.machine.Freq
	now := instant()
	if c.freq == 0 {
		n.endCeiling(now.Boot, c.change)
		c.answer <- reply[[]int64]{value: n.ceilings()}
		return
	}
	var err error
	switch {
	case f == nil || f.Ceilings == nil:
		err = localRefused("no-cpufreq", "this machine's frequency cannot be bounded: "+n.machine.FreqInfo.Text, "see powerd freq list")
	case n.mode != holding:
		err = localRefused("observing", "this node only observes, so its frequency is left alone", "enforce: true in powerd.yaml lets powerd write")
	case c.freq < f.Config.Min:
		err = localRefused("below-range", fmt.Sprintf("%v is below %v, the lowest frequency", c.freq, f.Config.Min), "see powerd freq list")
	}
	if err != nil {
		c.answer <- reply[[]int64]{err: err}
		return
	}
	if n.records.saved(f.Controls()...) {
		n.takeCeiling(now.Boot, c)
		return
	}
	c.until = now.Boot + releaseWait
	n.caps.ceiling.wanted = c
}

// takeCeiling writes the ceiling; its controls have been saved.
func (n *node) takeCeiling(now time.Duration, c *ceilingCall) {
	n.caps.ceiling = localCeiling{freq: c.freq, until: now + c.length, change: c.change}
	n.log.Info("local frequency ceiling set", slog.String("ceiling", c.freq.String()), slog.Duration("for", c.length),
		slog.String("actor", c.change.GetActor()), slog.String("reason", c.change.GetReason()))
	n.turn(instant())
	n.publish(instant())
	c.answer <- reply[[]int64]{value: n.ceilings()}
}

// awaitCeiling looks after a ceiling that waits for the journal.
func (n *node) awaitCeiling(now time.Duration) {
	c := n.caps.ceiling.wanted
	if c == nil {
		return
	}
	switch {
	case n.mode == holding && n.records.saved(n.machine.Freq.Controls()...):
		n.caps.ceiling.wanted = nil
		n.takeCeiling(now, c)
	case now > c.until:
		n.caps.ceiling.wanted = nil
		c.answer <- reply[[]int64]{err: localRefused("state-dir", "the frequency's originals could not be saved, so it was not changed", "make room in "+n.cfg.StateDir)}
	}
}

// endCeiling takes the ceiling away. Where the frequency is no rung, everything
// goes back to what it was.
func (n *node) endCeiling(now time.Duration, change *headroomv1.Change) {
	if n.caps.ceiling.until == 0 {
		return
	}
	n.caps.ceiling = localCeiling{}
	n.log.Info("local frequency ceiling over", slog.String("actor", change.GetActor()))
	if n.machine.OnRAPL() && n.records.journal != nil && n.mode == holding {
		n.tidyRungs()
		f := n.machine.Freq
		f.Used = false
		clear(f.Written)
		f.ReadBack()
	} else {
		n.turn(instant())
	}
	n.expireLocals(now)
}

// expireLocals ends what has run out.
func (n *node) expireLocals(now time.Duration) {
	if until := n.lease.LocalUntil(); until > 0 && now >= until {
		n.lease.SetLocal(0, 0)
		n.log.Info("local limit ended by itself")
	}
	if c := n.caps.ceiling; c.until > 0 && now >= c.until {
		n.endCeiling(now, nil)
	}
}

// ceilings are what reads back on each policy, kHz.
func (n *node) ceilings() []int64 {
	f := n.machine.Freq
	if f == nil {
		return nil
	}
	all := make([]int64, 0, len(f.Set.Policies()))
	for _, p := range f.Set.Policies() {
		v, err := p.CeilingNow()
		if err != nil {
			v = 0
		}
		all = append(all, int64(v))
	}
	return all
}

// localStatus is what an operator set here, for status; nil for nothing.
func (n *node) localStatus(now time.Duration) *headroomv1.LocalLimit {
	p, f := n.lease.Local(now), n.caps.ceiling.at(now)
	if p == 0 && f == 0 {
		return nil
	}
	l := &headroomv1.LocalLimit{}
	var until time.Duration
	if f > 0 {
		l.CeilingKhz, until, l.Change = new(int64(f)), n.caps.ceiling.until, n.caps.ceiling.change
	}
	if p > 0 {
		l.CapUw, until, l.Change = new(int64(p)), n.lease.LocalUntil(), n.caps.local
	}
	l.RemainingMs = (until - now).Milliseconds()
	return l
}

// waiter is somebody who waits for the answer to a heartbeat.
type waiter struct {
	beat   uint64
	until  time.Duration
	answer chan<- reply[struct{}]
}

// renewWait bounds waiting for the answer to one heartbeat.
const renewWait = 3 * time.Second

// renew sends a heartbeat at once; the answer comes with the leader's.
func (n *node) renew(answer chan<- reply[struct{}]) {
	if n.streams.Leader() == nil {
		answer <- reply[struct{}]{err: rpc.Refuse(connect.CodeUnavailable, "no-leader", cli.ExitUnreachable,
			"no coordinator that leads is reachable", "see powerd lease show and coordinator status")}
		return
	}
	n.heartbeat()
	n.waiting = append(n.waiting, &waiter{beat: n.lease.Beats(), until: instant().Boot + renewWait, answer: answer})
}

// answerWaiters tells those whose heartbeat was answered, or who waited too long.
func (n *node) answerWaiters(now time.Duration) {
	left := n.waiting[:0]
	for _, w := range n.waiting {
		switch {
		case n.lease.AnsweredBeat() >= w.beat:
			n.publish(instant())
			w.answer <- reply[struct{}]{}
		case now > w.until:
			w.answer <- reply[struct{}]{err: rpc.Refuse(connect.CodeDeadlineExceeded, "timeout", cli.ExitUnknown,
				"the leader did not answer the heartbeat in time", "see powerd lease show")}
		default:
			left = append(left, w)
		}
	}
	clear(n.waiting[len(left):])
	n.waiting = left
}

// SetLocalLimit caps this node below its lease for a time.
func (f front) SetLocalLimit(ctx context.Context, req *connect.Request[headroomv1.SetLocalLimitRequest]) (
	*connect.Response[headroomv1.SetLocalLimitResponse], error,
) {
	length, err := lengthOf(req.Msg.GetDurationMs())
	if err != nil {
		return nil, err
	}
	if req.Msg.GetCapUw() <= 0 {
		return nil, badLocal("a limit of 0 W is never written", "powerd limit clear takes a local limit away")
	}
	now, err := owned(ctx, f.n, func(_ context.Context, answer chan<- reply[units.Power]) {
		p, err := f.n.setLocal(units.Power(req.Msg.GetCapUw()), length, req.Msg.GetChange())
		answer <- reply[units.Power]{p, err}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&headroomv1.SetLocalLimitResponse{CapUw: int64(now)}), nil
}

// ClearLocalLimit takes a local limit away.
func (f front) ClearLocalLimit(ctx context.Context, req *connect.Request[headroomv1.ClearLocalLimitRequest]) (
	*connect.Response[headroomv1.ClearLocalLimitResponse], error,
) {
	was, err := owned(ctx, f.n, func(_ context.Context, answer chan<- reply[bool]) {
		answer <- reply[bool]{value: f.n.clearLocal(req.Msg.GetChange())}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&headroomv1.ClearLocalLimitResponse{WasSet: was}), nil
}

// SetLocalCeiling bounds the frequency for a time; 0 takes the bound away.
func (f front) SetLocalCeiling(ctx context.Context, req *connect.Request[headroomv1.SetLocalCeilingRequest]) (
	*connect.Response[headroomv1.SetLocalCeilingResponse], error,
) {
	call := &ceilingCall{freq: units.Freq(req.Msg.GetCeilingKhz()), change: req.Msg.GetChange(), answer: make(chan reply[[]int64], 1)}
	if call.freq < 0 {
		return nil, badLocal("a frequency below 0", "0 takes the ceiling away")
	}
	if call.freq > 0 {
		var err error
		if call.length, err = lengthOf(req.Msg.GetDurationMs()); err != nil {
			return nil, err
		}
	}
	select {
	case f.n.calls <- func(context.Context) { f.n.setCeiling(call) }:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-call.answer:
		if r.err != nil {
			return nil, r.err
		}
		return connect.NewResponse(&headroomv1.SetLocalCeilingResponse{EffectiveKhz: r.value}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// RenewLease sends a heartbeat at once and tells how the lease stands afterwards.
func (f front) RenewLease(ctx context.Context, _ *connect.Request[headroomv1.RenewLeaseRequest]) (
	*connect.Response[headroomv1.RenewLeaseResponse], error,
) {
	if _, err := owned(ctx, f.n, func(_ context.Context, answer chan<- reply[struct{}]) { f.n.renew(answer) }); err != nil {
		return nil, err
	}
	s := f.n.snapshot()
	return connect.NewResponse(&headroomv1.RenewLeaseResponse{LeaseMs: s.LeaseMs, Leader: s.GetLeader()}), nil
}
