package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"headroom/internal/cli"
	"headroom/internal/durable"
)

// keyTerm is raft's own key of the current term.
const keyTerm = "CurrentTerm"

// End is where a log ends: of two servers' logs, the one with the higher term
// holds more, and with the same term the one with the higher index.
type End struct {
	Term, Index uint64
	// Servers of the group by this log.
	Servers []Server
	// Acknowledged is what this server has acknowledged; the zero value if that is unknown.
	Acknowledged Acknowledged
}

// Lacks reports whether the log ends before what its server has acknowledged.
func (e End) Lacks() bool { return e.Acknowledged.behind(e.Term, e.Index) }

// Seed is what a new log begins with.
type Seed struct {
	// State is the machine's snapshot.
	State []byte
	// Term and Index of its last entry; both above 0.
	Term, Index uint64
	// Founders is the list of servers that this server is configured with; see
	// Config.Servers.
	Founders []Server
}

// Plant writes a new log into the empty directory cfg.Dir: of a group with this
// server alone, which begins with the seed's state. Others are added to it.
func Plant(cfg Config, seed Seed) error {
	cfg = cfg.withDefaults()
	if files, err := os.ReadDir(cfg.Dir); cfg.Stores == nil && err == nil && len(files) > 0 {
		return fmt.Errorf("consensus: plant in %s: %w", cfg.Dir, errNotEmpty)
	}
	stores, closeStores, err := openStores(cfg)
	if err != nil {
		return err
	}
	return errors.Join(plant(cfg, stores, seed), closeStores())
}

func plant(cfg Config, stores *Stores, seed Seed) error {
	if err := own(cfg, stores); err != nil {
		return err
	}
	if err := storeFounders(seed.Founders, stores); err != nil {
		return err
	}
	if err := storeOrigin(newOrigin(), stores.Stable); err != nil {
		return err
	}
	if err := stores.Stable.SetUint64([]byte(keyTerm), seed.Term); err != nil {
		return fmt.Errorf("consensus: store the term: %w", err)
	}
	_, loop := raft.NewInmemTransport("")
	defer func() { _ = loop.Close() }()
	sink, err := stores.Snapshots.Create(raft.SnapshotVersionMax, seed.Index, seed.Term, configuration([]Server{cfg.own()}), seed.Index, loop)
	if err != nil {
		return fmt.Errorf("consensus: write the state: %w", err)
	}
	return snapshot(seed.State).Persist(sink)
}

// Recover makes the log in cfg.Dir that of a group with this server alone, by
// raft's own RecoverCluster: for a group that has lost its majority for good.
// What stood in the log, committed or not, is applied to m; what m.Snapshot then
// returns is what the group begins with. Do it on a copy of the directory.
//
// Founders is the list that this server is configured with; see Config.Servers.
func Recover(cfg Config, m Machine, founders []Server) error {
	cfg = cfg.withDefaults()
	return withLog(cfg, func(rc *raft.Config, stores *Stores) error {
		if err := errors.Join(storeFounders(founders, stores), storeOrigin(newOrigin(), stores.Stable)); err != nil {
			return err
		}
		if err := keepTerm(cfg, stores); err != nil {
			return err
		}
		_, loop := raft.NewInmemTransport("")
		defer func() { _ = loop.Close() }()
		alone := configuration([]Server{cfg.own()})
		if err := raft.RecoverCluster(rc, adapter{machine: m}, stores.Log, stores.Stable, stores.Snapshots, loop, alone); err != nil {
			return fmt.Errorf("consensus: recover %s: %w", cfg.Dir, err)
		}
		return nil
	})
}

// keepTerm gives up what was acknowledged and is not here, but no term goes back: the stable store
// may be lost. The next start begins a new mark.
func keepTerm(cfg Config, stores *Stores) error {
	last, _, err := lastEntry(stores)
	if err != nil {
		return err
	}
	term, err := stores.Stable.GetUint64([]byte(keyTerm))
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("consensus: read the term: %w", err)
	}
	if cfg.Dir != "" {
		a := ReadAcknowledged(cfg.Dir)
		last = max(last, a.Term, a.EntryTerm)
		if err := durable.Remove(durable.OS{}, filepath.Join(cfg.Dir, markFile)); err != nil {
			return fmt.Errorf("consensus: %w", err)
		}
	}
	if err := stores.Stable.SetUint64([]byte(keyTerm), max(term, last)); err != nil {
		return fmt.Errorf("consensus: store the term: %w", err)
	}
	return nil
}

// ReadEnd tells where the log of a stopped server ends.
func ReadEnd(cfg Config) (End, error) {
	cfg = cfg.withDefaults()
	var end End
	err := withLog(cfg, func(rc *raft.Config, stores *Stores) error {
		logged, err := loggedServers(rc, stores)
		if err != nil {
			return err
		}
		for _, s := range logged.Servers {
			end.Servers = append(end.Servers, Server{ID: string(s.ID), Address: string(s.Address)})
		}
		end.Term, end.Index, err = lastEntry(stores)
		if cfg.Dir != "" {
			end.Acknowledged = ReadAcknowledged(cfg.Dir)
		}
		return err
	})
	return end, err
}

// newestSnapshot is where the newest snapshot ends; 0 without one.
func newestSnapshot(store raft.SnapshotStore) (term, index uint64, err error) {
	snaps, err := store.List()
	if err != nil {
		return 0, 0, fmt.Errorf("consensus: list the snapshots: %w", err)
	}
	for _, s := range snaps {
		if s.Index > index {
			term, index = s.Term, s.Index
		}
	}
	return term, index, nil
}

// lastEntry is the newest of the log and the snapshots.
func lastEntry(stores *Stores) (term, index uint64, err error) {
	if term, index, err = newestSnapshot(stores.Snapshots); err != nil {
		return 0, 0, err
	}
	last, err := stores.Log.LastIndex()
	if err != nil || last <= index {
		return term, index, err
	}
	var e raft.Log
	if err := stores.Log.GetLog(last, &e); err != nil {
		return 0, 0, fmt.Errorf("consensus: read entry %d: %w", last, err)
	}
	return e.Term, e.Index, nil
}

// withLog opens the log of a stopped server: it must exist, be this server's,
// be in no other process's hands, and be sound.
func withLog(cfg Config, do func(*raft.Config, *Stores) error) error {
	if _, err := os.Stat(cfg.Dir); cfg.Stores == nil && err != nil {
		return noState(cfg.Dir, err)
	}
	stores, closeStores, err := openStores(cfg)
	if err != nil {
		return err
	}
	err = caught(func() error {
		if exists, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots); err != nil || !exists {
			return noState(cfg.Dir, err)
		}
		if err := own(cfg, stores); err != nil {
			return err
		}
		if err := scan(cfg, stores); err != nil {
			return err
		}
		return do(cfg.raft(nil), stores)
	})
	return errors.Join(err, closeStores())
}

func noState(dir string, err error) error {
	return &cli.Error{
		Code: "no-state", Exit: cli.ExitFailed, Message: fmt.Sprintf("there is no log in %s", dir),
		Hint: "name the configuration of a server that was a member of the group", Err: errors.Join(errNoState, err),
	}
}
