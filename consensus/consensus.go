// Package consensus hosts a replicated state machine on a few servers: it keeps
// the log, elects the leader and hands every committed entry to the machine, on
// every server in the same order. Servers are added, get a vote and are removed
// while it runs.
//
// The one idea: a leader is only as good as its disk. raft elects by heartbeats,
// which never touch the disk; so every write of the log has a deadline, and one
// that misses it or fails closes the transport, so that the others elect, and
// ends the process. Nothing is tried twice on a disk that failed once.
//
// Guarantees:
//   - An entry takes effect only in the term it was proposed in. What a deposed
//     leader had on its way is refused alike on every server.
//   - Propose says what happened: done with its result, certainly not done, or
//     unknown. It never says done of what was not committed.
//   - Leadership is told only after everything committed before has been
//     applied here, with the term, so that a fast loss and return is seen as one.
//   - The log is read whole before anything is made of it, and every entry
//     carries a sum: one that is not what was written ends the process with its
//     name. Checksums over ranges are compared with the leader's besides.
//   - No change of the servers leaves a group without a healthy majority, and a
//     server votes only when it has been healthy for a while.
//   - A directory serves one server of one group, and a server hears only those
//     whose logs have the same origin: a foreign directory, a second process, a
//     group that was given up for lost have no say, and nothing is written.
//
// It never decides anything about watts, never changes the servers of a group by
// itself, and never starts a group anew over a log that exists: Plant and Recover
// do, for a stopped server, when an operator says so.
package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Open starts this server of the group. It returns as soon as the log is read;
// an election follows in the background.
//
// Errors that an operator can mend are *cli.Error and wrap ErrConfig,
// ErrServersChanged, ErrForeignLog, ErrInUse or ErrCorrupt.
func Open(cfg Config, m Machine) (*Group, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	stores, closeStores, err := openStores(cfg)
	if err != nil {
		return nil, err
	}
	g, err := open(cfg, m, stores)
	if err != nil {
		return nil, errors.Join(err, closeStores())
	}
	g.closeStores = closeStores
	return g, nil
}

func open(cfg Config, m Machine, stores *Stores) (*Group, error) {
	notify := make(chan bool)
	rc := cfg.raft(notify)
	if err := raft.ValidateConfig(rc); err != nil {
		return nil, badConfig(fmt.Sprintf("timing of the group: %v", err), "leave the timing at its defaults")
	}
	if err := scan(cfg, stores); err != nil {
		return nil, err
	}
	if err := found(cfg, rc, stores); err != nil {
		return nil, err
	}
	trans, err := openTransport(cfg)
	if err != nil {
		return nil, err
	}
	if err := trans.setOrigin(stores); err != nil {
		trans.cut()
		return nil, err
	}
	g := newGroup(cfg, trans, notify)
	g.checked = newCheckedLog(stores.Log, cfg.Logger, g.wire.trip)
	log := guardedLog{LogStore: g.checked, guard: g.guard}
	stable := guardedStable{StableStore: stores.Stable, guard: g.guard}
	r, err := raft.NewRaft(rc, adapter{m}, log, stable, stores.Snapshots, trans)
	if err != nil {
		trans.cut()
		g.checked.Close()
		return nil, fmt.Errorf("consensus: start %s: %w", cfg.ID, err)
	}
	g.start(r)
	return g, nil
}
