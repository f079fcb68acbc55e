// Package denials stores which certificates are denied, beside the log of a coordinator server.
//
// The one idea: a denial is permanent. The log has the denials, and so does a file beside it, so
// that neither a restart nor a restore from an older snapshot accepts a certificate again. The
// leader commits those that the log has lost.
//
// What it never does: forget a denial, or delay a log entry because of the file.
package denials

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"headroom/internal/durable"
	"headroom/internal/each"
	"headroom/internal/pause"
	"headroom/internal/secure"
	"headroom/ledger"
)

// file is beside the log and holds every denial, so that neither a restart nor
// a restore from an older snapshot accepts a denied certificate again.
const file = "denied.json"

// Config has the dependencies of a Store.
type Config struct {
	// Server is this server's id, StateDir the folder of its log.
	Server, StateDir string
	// Disk is the file system of StateDir; nil is the real one. Tests set one that forgets.
	Disk durable.FS
	// Denials is the list that connections are checked against.
	Denials *secure.Denials
	// State reads the committed state; Commit commits a command if this server leads.
	State  func(func(*ledger.State))
	Commit func(context.Context, ledger.Command) error
	// Tell requests that the denials be sent to all nodes.
	Tell   func()
	Logger *slog.Logger
}

// Store keeps the denials of a server.
type Store struct {
	server, stateDir string
	disk             durable.FS
	denials          *secure.Denials
	state            func(func(*ledger.State))
	commit           func(context.Context, ledger.Command) error
	tell             func()
	logger           *slog.Logger
	dirty            chan struct{} // the denials are not all on disk yet
}

// New returns the store of a server's denials.
func New(c Config) *Store {
	return &Store{
		server: c.Server, stateDir: c.StateDir, disk: cmp.Or[durable.FS](c.Disk, durable.OS{}), denials: c.Denials, state: c.State, commit: c.Commit, tell: c.Tell, logger: c.Logger,
		dirty: make(chan struct{}, 1),
	}
}

// Deny records the denials of the log, and never waits.
func (s *Store) Deny(all []ledger.Denial) {
	more := each.List(all, func(x ledger.Denial) secure.Denial { return secure.Denial(x) })
	if s.denials.Add(more...) {
		s.touch()
		s.tell()
	}
}

// touch requests writing the denials.
func (s *Store) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// Recall reads the denials of earlier processes. An unreadable file is
// logged: the log still has its denials.
func (s *Store) Recall() {
	all, err := secure.ReadDenialsIn(s.disk, filepath.Join(s.stateDir, file))
	if err != nil {
		s.logger.Error("denials file unreadable; using those in the log", slog.Any("error", err))
	}
	s.denials.Add(all...)
}

// Keep writes denials beside the log until ctx ends.
func (s *Store) Keep(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.dirty:
		}
		if err := s.store(); err != nil {
			s.logger.Error("denials file not written; the log has them", slog.Any("error", err))
			if pause.For(ctx, time.Second) {
				s.touch()
			}
		}
	}
}

func (s *Store) store() error {
	return secure.WriteDenialsIn(s.disk, filepath.Join(s.stateDir, file), s.denials.All())
}

// CommitMissing commits denials that the log lacks: the cluster was restored from an older
// snapshot.
func (s *Store) CommitMissing(ctx context.Context) {
	var missing []secure.Denial
	s.state(func(st *ledger.State) {
		for _, x := range s.denials.All() {
			if old, known := st.Denied[x.Key()]; !known || x.Identity != "" && old.At < x.At {
				missing = append(missing, x)
			}
		}
	})
	for _, x := range missing {
		d := ledger.Denial(x)
		if err := s.commit(ctx, ledger.Command{Deny: &d, Actor: s.server, Reason: "denied before the cluster was restored"}); err != nil {
			s.logger.Warn("denial not restored to the log", slog.String("denied", x.Key()), slog.Any("error", err))
			return
		}
	}
}

// Carry copies the denials beside the log in one folder to another, where a new log is created.
func Carry(from, to string) error {
	all, err := secure.ReadDenials(filepath.Join(filepath.Clean(from), file))
	if err != nil || len(all) == 0 {
		return err
	}
	return secure.WriteDenials(filepath.Join(to, file), all)
}
