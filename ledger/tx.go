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
	nodes []nodeBefore // oldest first
	// draft: nothing is taken back, the whole state is thrown away. Its Nodes are those of
	// the state that it was made of and are only read; changed nodes are in drafted.
	draft   bool
	drafted map[string]Node
}

// nodeBefore is a node as it was before a change.
type nodeBefore struct {
	name string
	node Node
	had  bool
}

func begin(s *State) *tx { return &tx{State: s, saved: *s} }

// try carries out parts of a tick on a draft of the state.
func try(s *State) *tx { return &tx{State: s.draft(), draft: true, drafted: map[string]Node{}} }

// node is a node as it is by now, and false when there is none of this name.
func (t *tx) node(name string) (Node, bool) {
	n, ok := t.drafted[name]
	if !ok {
		n, ok = t.Nodes[name]
	}
	return n, ok
}

// rollback takes every change back, newest first.
func (t *tx) rollback() {
	for _, was := range slices.Backward(t.nodes) {
		if was.had {
			t.Nodes[was.name] = was.node
		} else {
			delete(t.Nodes, was.name)
		}
	}
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

// putNode sets a node. A tick puts many: they are remembered without a function for each.
func (t *tx) putNode(n Node) {
	if t.draft {
		t.drafted[n.Name] = n
		return
	}
	old, had := t.Nodes[n.Name]
	t.nodes = append(t.nodes, nodeBefore{n.Name, old, had})
	t.Nodes[n.Name] = n
}

// replaceNode is putNode for a node that there is, where the caller has just read what it was.
func (t *tx) replaceNode(was, n Node) {
	if t.draft {
		t.drafted[n.Name] = n
		return
	}
	t.nodes = append(t.nodes, nodeBefore{n.Name, was, true})
	t.Nodes[n.Name] = n
}

// dropNode deletes a node. No part of a tick does.
func (t *tx) dropNode(name string) {
	if old, had := t.Nodes[name]; had {
		t.nodes = append(t.nodes, nodeBefore{name, old, true})
	}
	delete(t.Nodes, name)
}
