package consensus

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Every log has an origin: where it was founded, planted or recovered. raft itself
// believes every server that calls, whoever that is; so servers whose majority was
// given up for lost, and that come back after all, would write over the log of the
// survivor that was recovered. With the origin beside its address in every
// message, a server of one origin does not hear those of another.
//
// A log of a version that knew no origins has none, and hears everybody, as
// before; so does a server that waits to be added, until it takes the origin of
// the group that adds it.

// keyOrigin is where the stable store keeps the origin of the log.
const keyOrigin = "headroom.origin"

// originMark stands between an address and the origin in a message. Versions that
// do not know it take it for a part of the address, which they only show.
const originMark = '#'

// errForeignOrigin answers a server of another origin.
var errForeignOrigin = errors.New("its log has another origin")

// foundersOrigin is the origin of a group that its servers found at once, each by
// itself: the same on all of them.
func foundersOrigin(servers []Server) string {
	sum := sha256.Sum256([]byte(listServers(configuration(servers))))
	return hex.EncodeToString(sum[:8])
}

// newOrigin is the origin of a log that is planted or recovered.
func newOrigin() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails on Linux
	return hex.EncodeToString(b[:])
}

func storeOrigin(origin string, stable raft.StableStore) error {
	if err := stable.Set([]byte(keyOrigin), []byte(origin)); err != nil {
		return fmt.Errorf("consensus: store the origin: %w", err)
	}
	return nil
}

func readOrigin(stable raft.StableStore) (string, error) {
	origin, err := stable.Get([]byte(keyOrigin))
	if err != nil && !isNotFound(err) {
		return "", fmt.Errorf("consensus: read the origin: %w", err)
	}
	return string(origin), nil
}

// setOrigin reads the origin of the log; without any log one is taken over later.
func (t *transport) setOrigin(stores *Stores) error {
	origin, err := readOrigin(stores.Stable)
	if err != nil {
		return err
	}
	exists, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots)
	if err != nil {
		return fmt.Errorf("consensus: look for a log: %w", err)
	}
	t.origin = origin
	if origin == "" && !exists {
		t.adopt = func(theirs string) error { return storeOrigin(theirs, stores.Stable) }
	}
	return nil
}

// EncodePeer puts the origin beside the address.
func (t *transport) EncodePeer(id raft.ServerID, at raft.ServerAddress) []byte {
	out := t.Transport.EncodePeer(id, at)
	if origin := t.from(); origin != "" {
		out = append(append(bytes.Clone(out), originMark), origin...)
	}
	return out
}

// DecodePeer leaves the origin out.
func (t *transport) DecodePeer(peer []byte) raft.ServerAddress {
	at, _, _ := bytes.Cut(peer, []byte{originMark})
	return t.Transport.DecodePeer(at)
}

func (t *transport) from() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.origin
}

// hears reports whether a message comes from this server's origin. A server that
// waits takes over that of the first leader it hears.
func (t *transport) hears(r raft.RPC) bool {
	m, ok := r.Command.(raft.WithRPCHeader)
	if !ok {
		return true
	}
	_, theirs, _ := bytes.Cut(m.GetRPCHeader().Addr, []byte{originMark})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.origin != "" {
		return t.origin == string(theirs)
	}
	switch r.Command.(type) {
	case *raft.AppendEntriesRequest, *raft.InstallSnapshotRequest:
		if t.adopt != nil && len(theirs) > 0 && t.adopt(string(theirs)) == nil {
			t.origin, t.adopt = string(theirs), nil
		}
	}
	return true
}

// Consumer hands raft the messages of this server's origin.
func (t *transport) Consumer() <-chan raft.RPC {
	in, out := t.Transport.Consumer(), make(chan raft.RPC)
	t.pump.Go(func() {
		for {
			select {
			case r := <-in:
				if !t.hears(r) {
					r.Respond(nil, errForeignOrigin)
					continue
				}
				select {
				case out <- r:
				case <-t.ended:
					return
				}
			case <-t.ended:
				return
			}
		}
	})
	return out
}

// SetHeartbeatHandler hands raft the heartbeats of this server's origin.
func (t *transport) SetHeartbeatHandler(f func(raft.RPC)) {
	if f == nil {
		t.Transport.SetHeartbeatHandler(nil)
		return
	}
	t.Transport.SetHeartbeatHandler(func(r raft.RPC) {
		if !t.hears(r) {
			r.Respond(nil, errForeignOrigin)
			return
		}
		f(r)
	})
}
