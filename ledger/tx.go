package ledger

import "slices"

// tx is one command being carried out. Every change goes through it, so that a
// refused command leaves no trace: maps are changed by put and drop, which
// remember what was there; everything else in State is a value that a shallow
// copy keeps (slices are appended to or replaced, never written into).
type tx struct {
	*State
	saved State
	undo  []func()
	draft bool // nothing is taken back: the whole state is thrown away
}

func begin(s *State) *tx { return &tx{State: s, saved: *s} }

// try carries out commands on a draft of the state.
func try(s *State) *tx { return &tx{State: s, draft: true} }

// rollback takes every change back, newest first.
func (t *tx) rollback() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
	*t.State = t.saved
}

// put sets m[k] to v.
func put[K comparable, V any](t *tx, m map[K]V, k K, v V) {
	if t.draft {
		m[k] = v
		return
	}
	old, had := m[k]
	t.undo = append(t.undo, func() {
		if had {
			m[k] = old
		} else {
			delete(m, k)
		}
	})
	m[k] = v
}

// drop deletes m[k].
func drop[K comparable, V any](t *tx, m map[K]V, k K) {
	if old, had := m[k]; had && !t.draft {
		t.undo = append(t.undo, func() { m[k] = old })
	}
	delete(m, k)
}

func (t *tx) putNode(n Node) { put(t, t.Nodes, n.Name, n) }
