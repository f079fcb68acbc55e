// Package lease is the node's side of a lease: it accepts, renews and expires
// leases, and falls back to the fail-safe cap.
//
// A lease is a cap with an end. The node counts from the moment it SENT the
// heartbeat that the lease answers, on a clock that runs through suspend, so
// the lease always ends on the node no later than the coordinator assumes,
// with no synchronised clocks (design promise P2; after Gray and Cheriton,
// "Leases", SOSP 1989, but timed by the holder's clock).
//
// The one idea: Holder is a state machine whose inputs are the two clocks, the
// heartbeats sent and the grants received. Messages may be lost, delayed,
// duplicated or reordered. The cap it returns is always either one granted in
// answer to a heartbeat that this process sent less than a lease length ago, or
// the fail-safe cap.
//
// Guarantees: a grant with an older stamp than the highest stored is refused;
// a suspend ends the lease; nothing here ever extends a lease by itself. The
// package does no I/O: the caller stores Memory, which must survive a restart,
// durably before it accepts the grant. A lease is never part of Memory.
//
//headroom:apply
package lease

import (
	"fmt"
	"time"

	"headroom/units"
)

// Instant is one moment on the node's own clocks, both counted from boot. Boot is to
// be read before Awake: whatever comes between them then makes the machine look less
// suspended than it was, and never more.
type Instant struct {
	// Boot is CLOCK_BOOTTIME: it runs on through suspend.
	Boot time.Duration
	// Awake is CLOCK_MONOTONIC: it stands still in suspend.
	Awake time.Duration
}

// asleep is how long the machine has been suspended since boot.
func (i Instant) asleep() time.Duration { return i.Boot - i.Awake }

// Grant is a lease as it arrives from the coordinator.
type Grant struct {
	// Stamp orders this grant against others to the same node.
	Stamp Stamp
	// Cap is what the node may draw, at the wall.
	Cap units.Power
	// FailSafe is the fail-safe cap that the node is to store.
	FailSafe units.Power
	// Duration is how long the lease runs from the sending of the heartbeat it answers.
	Duration time.Duration
	// Heartbeat is the number of the heartbeat that the grant answers.
	Heartbeat uint64
	// Process is the id of the process that sent the heartbeat.
	Process uint64
	// BrakeLifted is the brake generation that the log has lifted.
	BrakeLifted uint64
	// Sprint that stands beside the cap; the zero Sprint is none.
	Sprint Sprint
}

// Sprint lets the node draw more than its cap for a while. It is a part of its
// grant: a newer stamp replaces cap and sprint together. Holder only keeps it;
// when it begins and ends is decided by who carries it out, and the cap stays
// what the node goes back to.
type Sprint struct {
	// ID of the escrow in the ledger; "" for no sprint.
	ID string
	// Cap while it lasts, at the wall; above the grant's.
	Cap units.Power
	// Duration counts from the first application.
	Duration time.Duration
	// Escrow is the energy above the cap that may be spent, at the wall.
	Escrow units.Energy
}

// sound reports whether the sprint makes sense beside a cap.
func (s Sprint) sound(base units.Power) bool {
	return s == Sprint{} || (s.ID != "" && s.Cap > base && s.Duration > 0 && s.Duration <= MaxSprint && s.Escrow > 0)
}

// Memory is what a node keeps across restarts, stored durably before a grant
// that changes it is taken. It never holds a lease.
type Memory struct {
	// Highest is the newest stamp taken; older grants are refused.
	Highest Stamp `json:"highest"`
	// FailSafe is the cap that the node falls to by itself.
	FailSafe units.Power `json:"fail_safe_uw"`
	// Brake is the highest brake generation that the node has seen.
	Brake uint64 `json:"brake"`
}

// State is what the node does with its cap.
type State int

// States of a Holder.
const (
	// FailSafe: no lease; the cap is the fail-safe cap.
	FailSafe State = iota
	// Held: a lease is running; the cap is the lease's.
	Held
)

// String is the state as status shows it.
func (s State) String() string {
	if s == Held {
		return "held"
	}
	return "fail-safe"
}

const (
	// remembered heartbeats: at one a second this covers a lease many times over.
	remembered = 128
	// suspendTolerance is how far CLOCK_BOOTTIME may run ahead of CLOCK_MONOTONIC
	// between two looks without it being a suspend; reading two clocks one after
	// the other on a busy machine differs by less.
	suspendTolerance = 100 * time.Millisecond
	// maxDuration bounds a lease; a longer one is refused as nonsense.
	maxDuration = 10 * time.Minute
	// MaxSprint bounds a sprint; a longer one is refused as nonsense.
	MaxSprint = time.Hour
)

// Holder is the node's side of its lease. It belongs to one goroutine.
//
// Invariant: while Held, the lease's stamp equals memory.Highest, its end lies at
// most its duration after a heartbeat that this process sent, and it says that every
// brake generation in memory is lifted.
type Holder struct {
	process uint64
	memory  Memory
	sent    [remembered]sending
	last    time.Duration // on CLOCK_BOOTTIME
	asleep  time.Duration // most that was seen of the time that the machine was suspended

	state   State
	cap     units.Power
	sprint  Sprint
	lowered lowered
	lifted  uint64        // brake generation that the lease says is lifted
	end     time.Duration // on CLOCK_BOOTTIME
	ended   Ended
}

// lowered is what grants that are not taken yet take away from the cap in force.
type lowered struct {
	stamp  Stamp       // of the newest of them
	cap    units.Power // the lowest; 0 for none
	sprint Sprint      // of the newest
	end    time.Duration
}

type sending struct {
	number uint64
	at     time.Duration
}

// Ended says why a Holder is at its fail-safe cap.
type Ended int

// Reasons for having no lease.
const (
	// NeverHeld: no grant has been taken since the process started.
	NeverHeld Ended = iota
	// RanOut: the lease reached its end.
	RanOut
	// Suspended: the machine slept while the lease ran.
	Suspended
	// Braked: the brake was set.
	Braked
	// Dropped: the holder itself gave the lease up.
	Dropped
)

// String is the reason in words.
func (e Ended) String() string {
	return [...]string{"no lease yet", "the lease ran out", "the machine was suspended", "the brake is set", "given up"}[e]
}

// New is a holder for the process with the given random id, with what the node
// remembered from earlier processes. It starts at the fail-safe cap.
func New(process uint64, m Memory, now Instant) *Holder {
	return &Holder{process: process, memory: m, last: now.Boot, asleep: now.asleep()}
}

// Sent records that heartbeat number is about to be sent. Call it before the
// bytes leave: a lease must never count from later than the sending.
func (h *Holder) Sent(number uint64, now Instant) {
	h.sent[number%remembered] = sending{number: number, at: now.Boot}
}

// Consider judges a grant without taking it. It returns the memory that must
// be stored durably before Take, or why the grant is refused.
func (h *Holder) Consider(g Grant, now Instant) (Memory, error) {
	if err := h.refusal(g, now); err != nil {
		return h.memory, fmt.Errorf("lease: grant %v: %w", g.Stamp, err)
	}
	m := h.memory
	m.Highest, m.FailSafe = g.Stamp, g.FailSafe
	return m, nil
}

func (h *Holder) refusal(g Grant, now Instant) error {
	sent := h.sent[g.Heartbeat%remembered]
	switch order := g.Stamp.Compare(h.memory.Highest); {
	case g.Process != h.process:
		return ErrOtherProcess
	case g.Heartbeat == 0 || sent.number != g.Heartbeat:
		return ErrUnknownHeartbeat
	case g.Cap <= 0 || g.FailSafe <= 0 || g.Duration <= 0 || g.Duration > maxDuration:
		return ErrMalformed
	case !g.Sprint.sound(g.Cap):
		return ErrMalformed
	case order < 0:
		return ErrStale
	case order == 0 && h.state == Held && (g.Cap != h.cap || g.Sprint != h.sprint):
		return ErrContradiction
	case g.BrakeLifted < h.memory.Brake:
		return ErrBraked
	case now.Boot >= sent.at+g.Duration:
		return ErrRanOut
	}
	return nil
}

// Lower takes from a grant what it takes away, before its memory is stored: until a
// grant of its stamp or a newer one is taken, or it would have run out itself, Most
// bounds the cap in force. Several leave the lowest. Nothing of it is acknowledged and
// nothing survives a restart, which begins at the fail-safe cap anyway.
func (h *Holder) Lower(g Grant, now Instant) error {
	if err := h.refusal(g, now); err != nil {
		return fmt.Errorf("lease: grant %v: %w", g.Stamp, err)
	}
	end := h.sent[g.Heartbeat%remembered].at + g.Duration
	l := &h.lowered
	if l.cap == 0 {
		*l = lowered{stamp: g.Stamp, cap: g.Cap, sprint: g.Sprint, end: end}
		return nil
	}
	l.cap, l.end = min(l.cap, g.Cap), max(l.end, end)
	if g.Stamp.Compare(l.stamp) >= 0 {
		l.stamp, l.sprint = g.Stamp, g.Sprint
	}
	return nil
}

// Most is what grants that are not taken yet leave of the cap in force while the
// sprint of that id is under way, "" for none; false where nothing waits.
func (h *Holder) Most(sprint string) (units.Power, bool) {
	l := h.lowered
	if sprint != "" && l.sprint.ID == sprint {
		return l.sprint.Cap, l.cap > 0
	}
	return l.cap, l.cap > 0
}

// Take makes the grant the node's lease; the memory that Consider returned
// must be on disk by now. A grant that Consider would refuse is refused again.
func (h *Holder) Take(g Grant, now Instant) error {
	m, err := h.Consider(g, now)
	if err != nil {
		return err
	}
	renewal := h.state == Held && g.Stamp == h.memory.Highest
	end := h.sent[g.Heartbeat%remembered].at + g.Duration
	if renewal {
		end = max(end, h.end)
	}
	if g.Stamp.Compare(h.lowered.stamp) >= 0 {
		h.lowered = lowered{}
	}
	h.memory, h.state, h.cap, h.sprint, h.end, h.lifted = m, Held, g.Cap, g.Sprint, end, g.BrakeLifted
	return nil
}

// Advance tells the holder the time. It ends a lease that has run out, or that
// a suspend has overtaken. Call it at every step of the node's loop, before Cap.
func (h *Holder) Advance(now Instant) {
	slept := now.asleep()-h.asleep > suspendTolerance
	backwards := now.Boot < h.last
	h.last, h.asleep = now.Boot, max(h.asleep, now.asleep())
	if backwards || now.Boot >= h.lowered.end {
		h.lowered = lowered{}
	}
	switch {
	case h.state != Held:
	case slept || backwards:
		h.drop(Suspended)
	case now.Boot >= h.end:
		h.drop(RanOut)
	}
}

// Brake stores a brake generation seen in gossip: the lease ends at once and
// grants below that generation are refused. A generation that the lease itself says
// is lifted is only stored: a replay of it ends nothing. The returned memory must be
// stored.
func (h *Holder) Brake(generation uint64) Memory {
	if generation > h.memory.Brake {
		h.memory.Brake = generation
		if h.state != Held || h.lifted < generation {
			h.drop(Braked)
		}
	}
	return h.memory
}

// Drop gives the lease up, e.g. after a release or when its memory could not be stored.
func (h *Holder) Drop() { h.drop(Dropped) }

func (h *Holder) drop(why Ended) {
	if h.state == Held || why == Braked {
		h.state, h.cap, h.sprint, h.ended = FailSafe, 0, Sprint{}, why
	}
}

// SetFailSafe changes the stored fail-safe cap from the node's own side (its
// configuration changed). The returned memory must be stored.
func (h *Holder) SetFailSafe(p units.Power) Memory {
	h.memory.FailSafe = p
	return h.memory
}

// Cap is what the node may draw now, and by which right.
func (h *Holder) Cap() (units.Power, State) {
	if h.state == Held {
		return h.cap, Held
	}
	return h.memory.FailSafe, FailSafe
}

// Sprint is the sprint beside the cap in force, and false without one.
func (h *Holder) Sprint() (Sprint, bool) { return h.sprint, h.sprint.ID != "" }

// Remaining is how long the lease still runs, and false without a lease.
func (h *Holder) Remaining(now Instant) (time.Duration, bool) {
	if h.state != Held {
		return 0, false
	}
	return max(0, h.end-now.Boot), true
}

// Memory is what the holder remembers across restarts.
func (h *Holder) Memory() Memory { return h.memory }

// Why is the reason for being at the fail-safe cap; meaningless while Held.
func (h *Holder) Why() Ended { return h.ended }
