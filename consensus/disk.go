package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"golang.org/x/sys/unix"

	"headroom/internal/cli"
	"headroom/internal/each"
)

// keyServer is where the stable store keeps the id of the server it belongs to.
const keyServer = "headroom.server"

// keyFounders is where it keeps the list of servers that its log began with.
const keyFounders = "headroom.founders"

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
		if _, told := errors.AsType[*cli.Error](err); told {
			return nil, nil, err
		}
		if isDamage(err) {
			return nil, nil, damaged(cfg.Dir, "it does not open", err)
		}
		return nil, nil, &cli.Error{
			Exit:    cli.ExitFailed,
			Message: fmt.Sprintf("cannot open the log in %s: %v", cfg.Dir, err),
			Hint:    "is the directory on a local disk, writable, and not full?",
			Err:     err,
		}
	}
	return stores, func() error { return errors.Join(closeLog(), lock.Close()) }, nil
}

// Hold keeps every process out of the directory of a stopped server until release
// is called. ErrInUse while a server runs there.
func Hold(dir string) (release func() error, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
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
	if err := checkFiles(cfg.Dir); err != nil {
		return nil, nil, err
	}
	var log *wal.WAL
	err := caught(func() (err error) {
		log, err = wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(newLogger(cfg.Logger)))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("consensus: open %s: %w", dir, err)
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, snapshotsKept, newLogger(cfg.Logger))
	if err != nil {
		_ = log.Close()
		return nil, nil, fmt.Errorf("consensus: open snapshots in %s: %w", cfg.Dir, err)
	}
	if err := errors.Join(private(dir), private(filepath.Join(cfg.Dir, "snapshots"))); err != nil {
		_ = log.Close()
		return nil, nil, err
	}
	return &Stores{Log: log, Stable: log, Snapshots: snaps}, log.Close, nil
}

// found writes the first configuration where there is no state yet, and
// otherwise checks that the state is this server's and this group's. It never
// changes a log that exists. A server that joins a group gets no configuration:
// it waits for the leader's.
func found(cfg Config, rc *raft.Config, stores *Stores) error {
	if err := own(cfg, stores); err != nil {
		return err
	}
	exists, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots)
	switch {
	case err != nil:
		return fmt.Errorf("consensus: look for a log: %w", err)
	case exists:
		return sameServers(cfg, rc, stores)
	}
	if err := storeFounders(cfg.Servers, stores); err != nil || cfg.Join {
		return err
	}
	if err := storeOrigin(foundersOrigin(cfg.Servers), stores.Stable); err != nil {
		return err
	}
	_, loop := raft.NewInmemTransport("")
	defer func() { _ = loop.Close() }()
	if err := raft.BootstrapCluster(rc, stores.Log, stores.Stable, stores.Snapshots, loop, cfg.servers()); err != nil {
		return fmt.Errorf("consensus: write the first configuration: %w", err)
	}
	return nil
}

// own makes the stores this server's, or refuses another's.
func own(cfg Config, stores *Stores) error {
	owner, err := stores.Stable.Get([]byte(keyServer))
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("consensus: read the log's owner: %w", err)
	}
	if len(owner) > 0 && string(owner) != cfg.ID {
		return cfg.foreign("the log", string(owner))
	}
	if len(owner) > 0 {
		return nil
	}
	if err := stores.Stable.Set([]byte(keyServer), []byte(cfg.ID)); err != nil {
		return fmt.Errorf("consensus: store the log's owner: %w", err)
	}
	return nil
}

// foreign is the refusal of what another server has written.
func (c Config) foreign(what, owner string) error {
	return &cli.Error{
		Code: "conflict", Exit: cli.ExitConflict,
		Message: fmt.Sprintf("%s in %s belongs to server %s; this is server %s", what, c.Dir, owner, c.ID),
		Hint:    "give every server a directory of its own, and keep it when the server moves",
		Err:     errForeignLog,
	}
}

// storeFounders notes the list that this server was configured with when its
// log began, whether it founded the group or joined it.
func storeFounders(servers []Server, stores *Stores) error {
	if err := stores.Stable.Set([]byte(keyFounders), []byte(listServers(configuration(servers)))); err != nil {
		return fmt.Errorf("consensus: store the first servers: %w", err)
	}
	return nil
}

// isNotFound knows the two ways in which stores say that a key is absent.
func isNotFound(err error) bool {
	return errors.Is(err, wal.ErrNotFound) || err.Error() == "not found"
}

// sameServers refuses a list of servers that is neither the one that the log
// began with nor the log's own: whoever wrote it believes that the list changes
// the group, and it does not.
func sameServers(cfg Config, rc *raft.Config, stores *Stores) error {
	logged, err := loggedServers(rc, stores)
	if err != nil {
		return err
	}
	founders, err := stores.Stable.Get([]byte(keyFounders))
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("consensus: read the first servers: %w", err)
	}
	configured := listServers(cfg.servers())
	switch {
	case configured == string(founders):
		return nil
	case configured == listServers(logged) && len(founders) > 0:
		return nil
	case configured == listServers(logged): // a log from before the first servers were noted
		return storeFounders(cfg.Servers, stores)
	}
	hint := "configure the servers that the log has; change them with coordinator member add and remove, not in the configuration file"
	if mostMoved(logged, cfg.servers()) {
		hint = "no majority of the servers kept its address: run coordinator member recover on the server with the newest log, with the new addresses of all: " +
			strings.Join(recoverFlags(cfg.Servers), " ")
	}
	return &cli.Error{
		Code: "conflict", Exit: cli.ExitConflict,
		Message: fmt.Sprintf("the log has servers %s; the configuration has %s", listServers(logged), configured),
		Hint:    hint, Err: errServersChanged,
	}
}

// mostMoved reports whether two configurations have the same servers, and no majority of them
// at the same address: no leader can be elected to write the new addresses into the log.
func mostMoved(a, b raft.Configuration) bool {
	was, stayed := map[raft.ServerID]raft.ServerAddress{}, 0
	for _, s := range a.Servers {
		was[s.ID] = s.Address
	}
	for _, s := range b.Servers {
		if was[s.ID] == s.Address {
			stayed++
		}
		delete(was, s.ID)
	}
	return len(was) == 0 && len(a.Servers) == len(b.Servers) && stayed <= len(b.Servers)/2
}

// recoverFlags are the flags of coordinator member recover for these servers. Their RPC
// addresses are not known here.
func recoverFlags(servers []Server) []string {
	return each.List(servers, func(s Server) string { return fmt.Sprintf("--server %s=RPC,%s", s.ID, s.Address) })
}

// loggedServers are the servers of the group as the log has them.
func loggedServers(rc *raft.Config, stores *Stores) (raft.Configuration, error) {
	look := *rc
	look.NoSnapshotRestoreOnStart = true
	_, loop := raft.NewInmemTransport("")
	defer func() { _ = loop.Close() }()
	logged, err := raft.GetConfiguration(&look, blank{}, stores.Log, stores.Stable, stores.Snapshots, loop)
	if err != nil {
		return raft.Configuration{}, fmt.Errorf("consensus: read the log's servers: %w", err)
	}
	return logged, nil
}

// listServers is the list in words, sorted by id.
func listServers(c raft.Configuration) string {
	names := each.List(c.Servers, func(s raft.Server) string { return string(s.ID) + "=" + string(s.Address) })
	slices.Sort(names)
	return strings.Join(names, ", ")
}
