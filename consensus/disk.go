package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// keyServer is where the stable store keeps the id of the server it belongs to.
const keyServer = "headroom.server"

// openStores opens what holds the log and returns how to close it again.
func openStores(cfg Config) (*Stores, func() error, error) {
	if cfg.Stores != nil {
		return cfg.Stores, func() error { return nil }, nil
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	stores, closeLog, err := openDisk(cfg)
	if err != nil {
		_ = lock.Close()
		return nil, nil, &cli.Error{
			Exit:    cli.ExitFailed,
			Message: fmt.Sprintf("cannot open the log in %s: %v", cfg.Dir, err),
			Hint:    "is the directory on a local disk, writable, and not full?",
			Err:     err,
		}
	}
	return stores, func() error { return errors.Join(closeLog(), lock.Close()) }, nil
}

// lockDir keeps a second process out; two of them would share one vote.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot make %s: %v", dir, err),
			Hint: "choose a directory that this user may write", Err: err,
		}
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot lock %s: %v", dir, err),
			Hint: "choose a directory that this user may write", Err: err,
		}
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, &cli.Error{
			Code: "conflict", Exit: cli.ExitConflict,
			Message: "another process is using " + dir,
			Hint:    "stop it first: one directory belongs to one coordinator",
			Err:     fmt.Errorf("consensus: lock %s: %w: %w", path, ErrInUse, err),
		}
	}
	return f, nil
}

func openDisk(cfg Config) (*Stores, func() error, error) {
	dir := filepath.Join(cfg.Dir, "log")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("consensus: open %s: %w", dir, err)
	}
	log, err := wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(newLogger(cfg.Logger)))
	if err != nil {
		return nil, nil, fmt.Errorf("consensus: open %s: %w", dir, err)
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, snapshotsKept, newLogger(cfg.Logger))
	if err != nil {
		_ = log.Close()
		return nil, nil, fmt.Errorf("consensus: open snapshots in %s: %w", cfg.Dir, err)
	}
	return &Stores{Log: log, Stable: log, Snapshots: snaps}, log.Close, nil
}

// found writes the first configuration where there is no state yet, and
// otherwise checks that the state is this server's and this group's. It never
// changes a log that exists.
func found(cfg Config, rc *raft.Config, stores *Stores) error {
	owner, err := stores.Stable.Get([]byte(keyServer))
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("consensus: read the log's owner: %w", err)
	}
	if len(owner) > 0 && string(owner) != cfg.ID {
		return &cli.Error{
			Code: "conflict", Exit: cli.ExitConflict,
			Message: fmt.Sprintf("the log in %s belongs to server %s, this is %s", cfg.Dir, owner, cfg.ID),
			Hint:    "give every server a directory of its own, and keep it when the server moves",
			Err:     ErrForeignLog,
		}
	}
	exists, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots)
	if err != nil {
		return fmt.Errorf("consensus: look for a log: %w", err)
	}
	if len(owner) == 0 {
		if err := stores.Stable.Set([]byte(keyServer), []byte(cfg.ID)); err != nil {
			return fmt.Errorf("consensus: store the log's owner: %w", err)
		}
	}
	if exists {
		return sameServers(cfg, rc, stores)
	}
	_, loop := raft.NewInmemTransport("")
	defer func() { _ = loop.Close() }()
	if err := raft.BootstrapCluster(rc, stores.Log, stores.Stable, stores.Snapshots, loop, cfg.servers()); err != nil {
		return fmt.Errorf("consensus: write the first configuration: %w", err)
	}
	return nil
}

// isNotFound knows the two ways in which stores say that a key is absent.
func isNotFound(err error) bool {
	return errors.Is(err, wal.ErrNotFound) || err.Error() == "not found"
}

// sameServers compares the configured servers with those of the log.
func sameServers(cfg Config, rc *raft.Config, stores *Stores) error {
	look := *rc
	look.NoSnapshotRestoreOnStart = true
	_, loop := raft.NewInmemTransport("")
	defer func() { _ = loop.Close() }()
	logged, err := raft.GetConfiguration(&look, blank{}, stores.Log, stores.Stable, stores.Snapshots, loop)
	if err != nil {
		return fmt.Errorf("consensus: read the log's servers: %w", err)
	}
	was := map[raft.ServerID]raft.ServerAddress{}
	for _, s := range logged.Servers {
		was[s.ID] = s.Address
	}
	same := len(was) == len(cfg.Servers)
	for _, s := range cfg.Servers {
		same = same && was[raft.ServerID(s.ID)] == raft.ServerAddress(s.Address)
	}
	if same {
		return nil
	}
	return &cli.Error{
		Code: "conflict", Exit: cli.ExitConflict,
		Message: fmt.Sprintf("the log was written by servers %s, configured are %s", listServers(logged), listServers(cfg.servers())),
		Hint:    "configure the servers of the log again, or use an empty directory to found a new group on every server",
		Err:     ErrServersChanged,
	}
}

func listServers(c raft.Configuration) string {
	var out strings.Builder
	for i, s := range c.Servers {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(string(s.ID) + "=" + string(s.Address))
	}
	return out.String()
}
