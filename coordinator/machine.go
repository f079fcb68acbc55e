package coordinator

import (
	"sync"

	"headroom/ledger"
)

// machine is the ledger as consensus hosts it.
type machine struct {
	mu    sync.RWMutex
	state *ledger.State
}

func newMachine() *machine { return &machine{state: ledger.New()} }

// applied is what Apply answers to the proposer.
type applied struct {
	result ledger.Result
	err    error
}

// Apply implements consensus.Machine. A command that cannot be decoded or is
// refused leaves the state as it was, on every server alike.
func (m *machine) Apply(_ uint64, data []byte) any {
	c, err := ledger.Decode(data)
	if err != nil {
		return applied{err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.state.Apply(c)
	return applied{result: r, err: err}
}

// Snapshot implements consensus.Machine.
func (m *machine) Snapshot() ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Snapshot()
}

// Restore implements consensus.Machine.
func (m *machine) Restore(data []byte) error {
	s, err := ledger.Restore(data)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	return nil
}

// view lets f read the state. f must not keep it.
func (m *machine) view(f func(*ledger.State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.state)
}
