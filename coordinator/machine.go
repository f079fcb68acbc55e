package coordinator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"headroom/ledger"
)

// machine is the ledger as consensus hosts it.
type machine struct {
	mu    sync.RWMutex
	state *ledger.State
	index uint64 // of the newest entry applied; 0 after a snapshot and before any
	rules ledger.Known
	// outdated ends a server that cannot follow the group any more.
	outdated func(error)
	// applied is told how long applying an entry took.
	applied func(time.Duration)
	// denied is told what the log denies, whenever that may have grown.
	denied func([]ledger.Denial)
	ticked time.Time // when the newest tick was applied here, monotonic; zero before any
}

// newMachine is a machine with an empty state. Which rules it begins under its
// first entry tells: a log that an older server began is replayed by its rules.
func newMachine() *machine {
	m := &machine{state: ledger.New(), rules: ledger.Rules, outdated: func(error) {}, applied: func(time.Duration) {}, denied: func([]ledger.Denial) {}}
	m.state.Rules = 0
	return m
}

// errOutdated ends a server that does not know the rules of an entry.
var errOutdated = errors.New("the log has an entry of rules that this version does not know")

// applied is what Apply answers to the proposer.
type applied struct {
	result ledger.Result
	err    error
}

// Apply implements consensus.Machine. A command that cannot be decoded or is
// refused leaves the state as it was, on every server alike. One of rules that
// this server does not know ends it: it would differ from the others from here on.
func (m *machine) Apply(index uint64, data []byte) any {
	if err := m.follows(data); err != nil {
		m.outdated(fmt.Errorf("entry %d: %w", index, err))
		return applied{err: err}
	}
	c, err := m.rules.Decode(data)
	if err != nil {
		return applied{err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = index
	m.state.Rules = cmp.Or(m.state.Rules, c.Rules)
	began := time.Now()
	r, err := m.state.Apply(c)
	m.applied(time.Since(began))
	if err == nil && c.Tick != nil {
		m.ticked = began
	}
	if c.Deny != nil && err == nil {
		m.denied(m.state.DeniedByKey())
	}
	return applied{result: r, err: err}
}

// follows tells whether this server knows the rules that an entry was written under.
func (m *machine) follows(data []byte) error {
	var head struct {
		Rules     int  `json:"rules"`
		Ignorable bool `json:"ignorable"`
	}
	if json.Unmarshal(data, &head) != nil || head.Rules <= 0 || head.Ignorable {
		return nil // Decode says what is wrong with it, alike on every server
	}
	if oldest := ledger.OldestRules; head.Rules < oldest || head.Rules > int(m.rules) {
		return fmt.Errorf("rules %d, this is version %s with rules %d to %d: %w", head.Rules, Version, oldest, m.rules, errOutdated)
	}
	return nil
}

// inForce are the rules to write under: those in force, or the newest known
// where the log is empty.
func (m *machine) inForce() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return cmp.Or(m.state.Rules, int(m.rules))
}

// Snapshot implements consensus.Machine.
func (m *machine) Snapshot() ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Snapshot()
}

// Restore implements consensus.Machine.
func (m *machine) Restore(data []byte) error {
	s, err := m.rules.Restore(data)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.index = s, 0
	m.denied(s.DeniedByKey())
	return nil
}

// gap is the monotonic time since the newest tick was applied here; 0 where none was since
// the start.
func (m *machine) gap() time.Duration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.ticked.IsZero() {
		return 0
	}
	return time.Since(m.ticked)
}

// view lets f read the state. f must not keep it.
func (m *machine) view(f func(*ledger.State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state)
}
