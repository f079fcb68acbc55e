// Package consensus hosts a replicated state machine on a few servers: it keeps
// the log, elects the leader and hands every committed entry to the machine, on
// every server in the same order. Servers are added, get a vote and are removed
// while it runs.
//
// The one idea: a leader needs a working disk. raft elects by heartbeats, which
// never touch the disk. So every write of the log has a deadline. A write that
// fails or misses it closes the transport, so that the other servers elect a
// leader, and ends the process. No write is retried on a disk that failed.
//
// Guarantees:
//   - An entry takes effect only in the term it was proposed in. Entries that a
//     former leader still had in flight are refused on every server.
//   - ProposeIn returns a result after the commit, an error that means nothing
//     was done, or ErrUnknownOutcome. It never returns a result without a commit.
//   - Leadership is published with its term, and only after every earlier
//     committed entry is applied here, so a quick loss and return is noticed.
//   - The whole log is read before it is used, and every entry carries a
//     checksum. A damaged entry ends the process with an error that names it.
//     Checksums over ranges are also compared with the leader's.
//   - No change of membership leaves the cluster without a healthy majority, and
//     a server votes only after it has been healthy for a while.
//   - A directory belongs to one server of one cluster, and a server accepts only
//     servers whose logs have the same origin. The directory of another server, a
//     second process or an abandoned cluster is refused, and nothing is written.
//
// It never decides anything about watts, never changes membership by itself, and
// never starts a new cluster over an existing log: Plant and Recover do that for
// a stopped server, when an operator asks for it.
package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
)

// Open starts this server. It returns as soon as the log is read; an election
// follows in the background.
//
// Errors that an operator can fix are *cli.Error and wrap ErrConfig,
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
	var g *Group
	err = caught(func() (err error) {
		g, err = open(cfg, m, stores)
		return err
	})
	if err != nil {
		if _, told := errors.AsType[*cli.Error](err); !told && isDamage(err) {
			err = damaged(cfg.Dir, "it cannot be used", err)
		}
		return nil, errors.Join(err, caught(closeStores))
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
	begin, err := checkMark(cfg, stores)
	if err != nil {
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
	if g.mark, err = openMark(cfg.files, cfg.Dir, begin, g.guard, g.identify); err != nil {
		trans.cut()
		g.checked.Close()
		return nil, err
	}
	log := guardedLog{
		LogStore: g.checked, snapshots: stores.Snapshots, guard: g.guard, mark: g.mark, routine: g.routineEntry, leads: g.leadsIn,
	}
	stable := markedStable{guardedStable{StableStore: stores.Stable, guard: g.guard}, g.mark}
	r, err := raft.NewRaft(rc, adapter{m, g.cannotRead}, log, stable, stores.Snapshots, trans)
	if err != nil {
		trans.cut()
		g.checked.Close()
		if g.unread != nil {
			err = cfg.unreadable(g.unread)
		}
		return nil, errors.Join(fmt.Errorf("consensus: start %s: %w", cfg.ID, err), g.mark.close())
	}
	g.start(r)
	return g, nil
}
