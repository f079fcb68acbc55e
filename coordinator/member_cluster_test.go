package coordinator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"headroom/consensus"
	"headroom/internal/rpc"
)

// shortcut is how a server in the bubble reaches the others' RPC: by calling their
// handlers, while neither is cut off.
type shortcut struct {
	c    *cluster
	from string
}

var errNoRoute = errors.New("no route")

// Do implements connect.HTTPClient.
func (w shortcut) Do(r *http.Request) (*http.Response, error) {
	to := strings.TrimPrefix(r.URL.Host, "rpc-")
	w.c.mu.Lock()
	server, gone := w.c.servers[to], w.c.cut[to] || w.c.cut[w.from]
	w.c.mu.Unlock()
	if server == nil || gone || w.c.lines.lost("raft-"+w.from, "raft-"+to) {
		return nil, errNoRoute
	}
	answer := httptest.NewRecorder()
	server.handler().ServeHTTP(answer, r.WithContext(rpc.WithCaller(r.Context(), rpc.Caller{Clear: true})))
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	if w.c.lines.lost("raft-"+to, "raft-"+w.from) {
		return nil, errNoRoute
	}
	return answer.Result(), nil
}

// memory is an empty disk in memory.
func memory() *consensus.Stores {
	store := raft.NewInmemStore()
	return &consensus.Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore()}
}

// await starts an empty server that waits to be added.
func (c *cluster) await(id string) {
	c.t.Helper()
	c.mu.Lock()
	if !slices.Contains(c.ids, id) {
		c.ids = append(slices.Clone(c.ids), id)
	}
	c.mu.Unlock()
	c.waits[id] = true
	c.disks[id] = memory()
	c.start(id)
}

func (c *cluster) expel(id string, err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.expelled[id] = err
	}
}

// reap ends the servers whose process would have ended by now.
func (c *cluster) reap() {
	for _, id := range c.every() {
		if c.expelledWith(id) != nil && c.server(id) != nil {
			c.kill(id)
		}
	}
}

func (c *cluster) expelledWith(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expelled[id]
}
