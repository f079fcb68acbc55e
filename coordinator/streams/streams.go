// Package streams holds the open streams of one coordinator server: one to the powerd of each
// node, and those to the schedulers.
//
// The one idea: a sender never waits. Each stream has a queue of bounded length that drops its
// oldest message when it is full, because a newer lease always replaces an older one. What must
// not be lost, denials and directives in force, is kept beside the queues and sent again on
// every new connection.
//
// Every server keeps its streams open; a follower names the leader on them. All types are safe
// for concurrent use.
//
// What it never does: decide, or send on the network itself; the RPC services do that.
package streams

import (
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/lease"
)

// Streams are the open streams of one server.
type Streams struct {
	// Nodes are those to powerd, Schedulers those to schedulers.
	Nodes      *Nodes
	Schedulers *Schedulers

	self string
}

// New is a server without any stream yet.
func New(self string) *Streams {
	return &Streams{self: self, Nodes: newNodes(), Schedulers: newSchedulers()}
}

// Lead announces this server as the leader on every stream, and starts its directives.
func (s *Streams) Lead(e lease.Epoch) {
	s.Schedulers.begin(e)
	s.Announce(&headroomv1.Leader{Id: s.self, Self: true, Epoch: wire.EpochMessage(e)})
}

// Announce sends the leader on every stream.
func (s *Streams) Announce(l *headroomv1.Leader) {
	s.Nodes.announce(l)
	s.Schedulers.announce(l)
}

// push queues a message and drops the oldest one if the queue is full.
func push[M any](box chan M, m M) {
	for {
		select {
		case box <- m:
			return
		default:
		}
		select {
		case <-box:
		default:
		}
	}
}
