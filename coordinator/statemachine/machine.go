// Package statemachine hosts the ledger for consensus: it decodes the entries of the log,
// applies them to the state, and gives others read access.
//
// The one idea: an entry has the same effect on every server. An entry that cannot be decoded,
// or is refused, changes the state on no server; a server that does not support the rules of
// an entry exits rather than diverge.
//
// What it never does: decide, wait, or hand out a state that may still change.
package statemachine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"headroom/internal/cli"
	"headroom/ledger"
)

// Machine is the ledger as consensus hosts it.
type Machine struct {
	mu    sync.RWMutex
	state *ledger.State
	index uint64 // of the newest entry applied; 0 after a snapshot and before any
	Rules ledger.Known
	// OnOutdated ends a server that does not support the rules of an entry.
	OnOutdated func(error)
	// OnApplied gets the state after an entry, which it must not keep, and how long applying it took.
	OnApplied func(after *ledger.State, took time.Duration)
	// OnDenied receives the log's denials whenever there may be more.
	OnDenied func([]ledger.Denial)
	ticked   time.Time // when the newest tick was applied here, monotonic; zero before any
}

// New is a machine with an empty state. Which rules it begins under its
// first entry tells: a log that an older server began is replayed by its rules.
func New() *Machine {
	m := &Machine{state: ledger.New(), Rules: ledger.Rules, OnOutdated: func(error) {}, OnApplied: func(*ledger.State, time.Duration) {}, OnDenied: func([]ledger.Denial) {}}
	m.state.Rules = 0
	return m
}

// errOutdated ends a server that does not know the rules of an entry.
var errOutdated = errors.New("the log has an entry with rules that this version does not support")

// Applied is what Apply answers to the proposer.
type Applied struct {
	Result ledger.Result
	Err    error
}

// Apply implements consensus.Machine. A command that cannot be decoded or is
// refused leaves the state as it was, on every server alike. One of rules that
// this server does not know ends it: it would differ from the others from here on.
func (m *Machine) Apply(index uint64, data []byte) any {
	if err := m.Check(data); err != nil {
		m.OnOutdated(fmt.Errorf("entry %d: %w", index, err))
		return Applied{Err: err}
	}
	c, err := m.Rules.Decode(data)
	if err != nil {
		return Applied{Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	m.state.Rules = cmp.Or(m.state.Rules, c.Rules)
	began := time.Now()
	r, err := m.state.Apply(c)
	m.OnApplied(m.state, time.Since(began))
	if err == nil && c.Tick != nil {
		m.ticked = began
	}
	if c.Deny != nil && err == nil {
		m.OnDenied(m.state.DeniedByKey())
	}
	return Applied{Result: r, Err: err}
}

// Check returns an error if this server does not support the rules of an entry.
func (m *Machine) Check(data []byte) error {
	var head struct {
		Rules     int  `json:"rules"`
		Ignorable bool `json:"ignorable"`
	}
	if json.Unmarshal(data, &head) != nil || head.Rules <= 0 || head.Ignorable {
		return nil // Decode says what is wrong with it, alike on every server
	}
	if oldest := ledger.OldestRules; head.Rules < oldest || head.Rules > int(m.Rules) {
		return fmt.Errorf("rules %d, this is version %s with rules %d to %d: %w", head.Rules, cli.Version, oldest, m.Rules, errOutdated)
	}
	return nil
}

// InForce are the rules to write under: those in force, or the newest known
// where the log is empty.
func (m *Machine) InForce() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return cmp.Or(m.state.Rules, int(m.Rules))
}

// Incarnation is the cluster's; 0 while there is none.
func (m *Machine) Incarnation() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Epoch.Incarnation
}

// Snapshot implements consensus.Machine.
func (m *Machine) Snapshot() ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Snapshot()
}

// Restore implements consensus.Machine.
func (m *Machine) Restore(data []byte) error {
	s, err := m.Rules.Restore(data)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.index = s, 0
	m.OnDenied(s.DeniedByKey())
	return nil
}

// Gap is the monotonic time since the newest tick was applied here; 0 where none was since
// the start.
func (m *Machine) Gap() time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ticked.IsZero() {
		return 0
	}
	return time.Since(m.ticked)
}

// Age returns the time since the newest tick that is applied here; 0 while unknown. A tick
// applied before the start counts by the wall clock of the leader that made it.
func (m *Machine) Age() time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch {
	case !m.ticked.IsZero():
		return time.Since(m.ticked)
	case m.state.Ticked > 0:
		return max(0, time.Since(time.UnixMicro(m.state.Ticked)))
	}
	return 0
}

// View lets f read the state. f must not keep it.
func (m *Machine) View(f func(*ledger.State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state)
}

// ViewAt is View with the index of the newest entry that was applied; 0 after a snapshot and before any.
func (m *Machine) ViewAt(f func(s *ledger.State, index uint64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state, m.index)
}

// Edit lets f change the state beside the log: for the state of a stopped server alone.
func (m *Machine) Edit(f func(*ledger.State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.state)
}
