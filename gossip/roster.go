package gossip

import (
	"context"
	"log/slog"
	"sync"

	"github.com/hashicorp/memberlist"
)

// roster is who is there, kept from memberlist's events.
type roster struct {
	log     *slog.Logger
	self    string // this member's name in memberlist
	changed chan struct{}
	lonely  chan struct{} // told when the last other member has gone

	mu      sync.Mutex
	all     map[string]entry // by memberlist's name
	ignored map[string]bool  // members whose description is not understood
}

// entry is one member that lives.
type entry struct {
	meta meta
	addr string
}

func newRoster(log *slog.Logger) *roster {
	return &roster{
		log: log, changed: make(chan struct{}, 1), lonely: make(chan struct{}, 1),
		all: map[string]entry{}, ignored: map[string]bool{},
	}
}

// NotifyJoin takes a member in.
func (r *roster) NotifyJoin(n *memberlist.Node) { r.put(n) }

// NotifyUpdate takes a changed description in.
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.put(n) }

// NotifyLeave drops a member that said goodbye or is missed.
func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	e, known := r.all[n.Name]
	delete(r.all, n.Name)
	delete(r.ignored, n.Name)
	alone := r.aloneLocked()
	r.mu.Unlock()
	if known {
		r.loss(e)
		poke(r.changed)
	}
	if alone {
		poke(r.lonely)
	}
}

func (r *roster) put(n *memberlist.Node) {
	m, err := decodeMeta(n.Meta)
	if err != nil {
		r.ignore(n, err)
		return
	}
	e := entry{meta: m, addr: n.Address()}
	r.mu.Lock()
	old, known := r.all[n.Name]
	r.all[n.Name] = e
	delete(r.ignored, n.Name)
	r.mu.Unlock()
	if known && old == e {
		return
	}
	if n.Name != r.self {
		r.news(e)
	}
	poke(r.changed)
}

// ignore drops a member that cannot be understood and says so once.
func (r *roster) ignore(n *memberlist.Node, err error) {
	r.mu.Lock()
	_, known := r.all[n.Name]
	said := r.ignored[n.Name]
	delete(r.all, n.Name)
	r.ignored[n.Name] = true
	r.mu.Unlock()
	if !said {
		r.log.Warn("member ignored", slog.String("addr", n.Address()), slog.Any("reason", err))
	}
	if known {
		poke(r.changed)
	}
}

// news logs that a member has come. Coordinators are news, a thousand nodes are
// not.
func (r *roster) news(e entry) {
	r.log.LogAttrs(context.Background(), weight(e), "member found", attrs(e)...)
}

// loss logs that a member has gone.
func (r *roster) loss(e entry) {
	r.log.LogAttrs(context.Background(), weight(e), "member gone", attrs(e)...)
}

func weight(e entry) slog.Level {
	if e.meta.role == RoleCoordinator {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func attrs(e entry) []slog.Attr {
	return []slog.Attr{
		slog.String("role", e.meta.role), slog.String("name", e.meta.name),
		slog.String("rpc", e.meta.rpc), slog.String("addr", e.addr),
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *roster) members(role string) []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sorted(newest(r.all, role))
}

// alone is whether no other member lives, understood or not.
func (r *roster) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aloneLocked()
}

func (r *roster) aloneLocked() bool {
	_, here := r.all[r.self]
	others := len(r.all) + len(r.ignored)
	if here {
		others--
	}
	return others <= 0
}

// count is how many members live, understood or not.
func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all) + len(r.ignored)
}

// named are the members of some of memberlist's names that still live.
func (r *roster) named(names []string) []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []entry
	for _, n := range names {
		if e, ok := r.all[n]; ok {
			out = append(out, e)
		}
	}
	return sorted(out)
}
