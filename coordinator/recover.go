package coordinator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"headroom/coordinator/denials"
	"headroom/coordinator/snapshot"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/view"

	"golang.org/x/sys/unix"

	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// Rebirth begins an incarnation of a group on one stopped server: from a snapshot
// file, or from the log of a survivor. The group has this server alone; the
// others that are named join it empty, and vote once they are stable. So there is
// one state only, and no two servers can each believe to have it.
//
// The new state is made in a folder beside the old one; then the two change
// places in one step. Whenever it is interrupted, the folder of the server holds
// either the old state or the new one, whole.
type Rebirth struct {
	// Config of the stopped server.
	Config Config
	// Verb is "restore" or "recover".
	Verb string
	// Budgets of every domain: the saved ones may be out of date.
	Budgets map[string]units.Power
	// Servers of the group to be, this one among them.
	Servers []ServerConfig
	// KeepTokens names the tokens that let in as before, by id or name. The others are
	// dropped: which were revoked after the saved state ends is not known.
	KeepTokens []string
	// LongestLease is the longest lease that nodes may hold which the saved state does not
	// know; 0 is unknown: the longest that there can be is waited for.
	LongestLease time.Duration
	// Actor, Reason and RequestID as in every change.
	Actor, Reason, RequestID string
	// Now is the wall clock.
	Now time.Time
	// DryRun makes everything and keeps nothing.
	DryRun bool
	// after is called after each step; tests end the work there.
	after func(step string)
}

// Reborn is what a Rebirth has made, or would.
type Reborn struct {
	Incarnation uint64
	Revision    uint64
	Nodes       int
	Domains     []ledger.Domain
	// Aside is where the old state is kept; empty when there was none.
	Aside string
	// Already: the same request was carried out before; nothing was done now.
	Already bool
	// End of the log that was recovered; nil for a snapshot.
	End *consensus.End
}

// noteFile tells, in a folder of a server, which request made its state.
const noteFile = "begun.json"

// begunNote is what noteFile holds.
type begunNote struct {
	Verb        string    `json:"verb"`
	RequestID   string    `json:"request_id"`
	Incarnation uint64    `json:"incarnation"`
	At          time.Time `json:"at"`
	Stamp       string    `json:"stamp"`
}

// renew makes a restored state fit to lead again; see ledger.State.Recover.
//
// The incarnation is numbered by the clock. Counting on from the saved one would
// give the same number twice when the same snapshot is restored twice, and nodes
// could not tell the grants of the first time from those of the second. Where the
// clock is wrong, nodes that have heard of a higher one show it; see reincarnate.
func (b Rebirth) renew(st *ledger.State) error {
	if err := b.named(st); err != nil {
		return err
	}
	err := st.Recover(b.Budgets, b.Now.UnixMicro(), b.Actor, cmp.Or(b.Reason, b.Verb), b.KeepTokens...)
	if errors.Is(err, ledger.ErrUnknownToken) {
		return &cli.Error{
			Code: "unknown-token", Exit: cli.ExitUsage, Message: view.Plain(err), Err: err, RequestID: b.RequestID,
			Hint: "--keep-token takes the name or the id of a token in the saved state",
		}
	}
	if err != nil {
		return &cli.Error{
			Code: "infeasible", Exit: cli.ExitRefused, Message: view.Plain(err), Err: err, RequestID: b.RequestID,
			Hint: "coordinator domain list tells rating and margin of each domain where another server still answers",
		}
	}
	if b.LongestLease > 0 {
		st.AssumeLeases(b.LongestLease)
	}
	begun := &st.Events[len(st.Events)-1]
	st.Epoch.Incarnation = max(st.Epoch.Incarnation, uint64(max(0, b.Now.Unix())))
	begun.RequestID, begun.What = b.RequestID, fmt.Sprintf("incarnation %d begins", st.Epoch.Incarnation)
	st.Servers = map[string]ledger.Server{}
	for _, x := range b.Servers {
		st.Servers[x.ID] = ledger.Server{ID: x.ID, RPC: x.RPC, Raft: x.Raft, Voter: true}
	}
	return nil
}

// named demands the budget of every domain, and no other. The snapshot may hold
// older and higher ones.
func (b Rebirth) named(st *ledger.State) error {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(st.Domains)) {
		if _, ok := b.Budgets[name]; !ok {
			missing = append(missing, fmt.Sprintf("%s (it had %v)", name, st.Domains[name].Budget))
		}
	}
	if len(missing) > 0 {
		return &cli.Error{
			Code: "budget-not-named", Exit: cli.ExitRefused, RequestID: b.RequestID, Err: ledger.ErrBudgetNotNamed,
			Message: "the budget of every domain must be named, because the saved one may be out of date; missing: " + strings.Join(missing, ", "),
			Hint:    "add --budget DOMAIN=POWER for each, e.g. --budget site/lab=2800W",
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Budgets)) {
		if _, ok := st.Domains[name]; !ok {
			return &cli.Error{
				Code: "unknown-domain", Exit: cli.ExitUsage, RequestID: b.RequestID, Err: ledger.ErrUnknownDomain,
				Message: fmt.Sprintf("domain %q is not in the saved power tree", name),
				Hint:    "its domains are " + strings.Join(slices.Sorted(maps.Keys(st.Domains)), ", "),
			}
		}
	}
	return nil
}

func (b Rebirth) result(st *ledger.State) Reborn {
	out := Reborn{Incarnation: st.Epoch.Incarnation, Revision: st.Revision, Nodes: len(st.Nodes)}
	for _, name := range slices.Sorted(maps.Keys(st.Domains)) {
		out.Domains = append(out.Domains, st.Domains[name])
	}
	return out
}

// End is where the log of this stopped server ends.
func (b Rebirth) End() (consensus.End, error) {
	return consensus.ReadEnd(b.consensusConfig(b.Config.StateDir))
}

// consensusConfig is how the log of this server in dir is opened while nothing runs.
func (b Rebirth) consensusConfig(dir string) consensus.Config {
	self, _ := b.Config.Self()
	return consensus.Config{
		ID: b.Config.ID, Servers: []consensus.Server{{ID: self.ID, Address: self.Raft}}, Dir: dir,
		Fatal: func(error) {}, Logger: slog.New(slog.DiscardHandler),
	}
}

// Restore begins the incarnation from a snapshot.
func (b Rebirth) Restore(h snapshot.Header, st *ledger.State) (Reborn, error) {
	if err := b.renew(st); err != nil {
		return Reborn{}, err
	}
	return b.replace(func(staging string) (Reborn, error) {
		state, err := st.Snapshot()
		if err != nil {
			return Reborn{}, err
		}
		err = consensus.Plant(b.consensusConfig(staging), consensus.Seed{
			State: state, Term: max(1, h.Term), Index: h.Index + 1, Founders: b.Config.peers(),
		})
		return b.result(st), err
	})
}

// Recover begins the incarnation from this server's own log.
func (b Rebirth) Recover() (Reborn, error) {
	return b.replace(func(staging string) (Reborn, error) {
		if err := copyTree(b.Config.StateDir, staging); err != nil {
			return Reborn{}, err
		}
		b.step("copied")
		m := &renewing{Machine: statemachine.New(), b: b}
		m.OnOutdated = func(err error) { m.failed = errors.Join(m.failed, err) }
		err := consensus.Recover(b.consensusConfig(staging), m, b.Config.peers())
		if m.failed != nil { // the reason, and not that it failed
			return Reborn{}, m.failed
		}
		var out Reborn
		m.View(func(st *ledger.State) { out = b.result(st) })
		return out, err
	})
}

// renewing is the machine of a log that is being recovered: what stood in the log
// has been applied when its snapshot is taken.
type renewing struct {
	*statemachine.Machine
	b      Rebirth
	failed error
}

// Snapshot implements consensus.Machine.
func (m *renewing) Snapshot() ([]byte, error) {
	if m.failed == nil {
		m.Edit(func(st *ledger.State) { m.failed = m.b.renew(st) })
	}
	if m.failed != nil {
		return nil, m.failed
	}
	return m.Machine.Snapshot()
}

func (b Rebirth) step(name string) {
	if b.after != nil {
		b.after(name)
	}
}

// replace makes a new state in a folder beside this server's and lets the two
// change places. With dry nothing stays.
func (b Rebirth) replace(plant func(staging string) (Reborn, error)) (Reborn, error) {
	dir := filepath.Clean(b.Config.StateDir)
	release, err := consensus.Hold(dir)
	if err != nil {
		return Reborn{}, err
	}
	defer func() { _ = release() }()
	if err := b.tidy(dir); err != nil {
		return Reborn{}, err
	}
	if n, ok := readNote(dir); ok && b.RequestID != "" && n.RequestID == b.RequestID {
		return Reborn{Incarnation: n.Incarnation, Already: true}, nil
	}
	stamp := b.Now.UTC().Format("20060102T150405Z")
	staging := dir + ".beginning-" + stamp
	out, err := b.stage(staging, stamp, plant)
	if err != nil || b.DryRun {
		return out, errors.Join(err, os.RemoveAll(staging))
	}
	b.step("staged")
	if err := swapDirs(staging, dir); err != nil {
		return Reborn{}, errors.Join(err, os.RemoveAll(staging))
	}
	b.step("exchanged")
	out.Aside, err = b.putAside(dir, staging, stamp)
	return out, err
}

// stage makes the new state in the folder staging, on the disk for good.
func (b Rebirth) stage(staging, stamp string, plant func(string) (Reborn, error)) (Reborn, error) {
	if err := os.Mkdir(staging, 0o700); err != nil {
		return Reborn{}, cannotWrite(staging, err)
	}
	out, err := plant(staging)
	if err != nil {
		return Reborn{}, err
	}
	b.step("planted")
	if err := denials.Carry(b.Config.StateDir, staging); err != nil {
		return Reborn{}, cannotWrite(staging, err)
	}
	note, err := json.Marshal(begunNote{Verb: b.Verb, RequestID: b.RequestID, Incarnation: out.Incarnation, At: b.Now.UTC(), Stamp: stamp})
	if err != nil {
		return Reborn{}, fmt.Errorf("coordinator: %s: %w", b.Verb, err)
	}
	if err := os.WriteFile(filepath.Join(staging, noteFile), append(note, '\n'), 0o600); err != nil {
		return Reborn{}, cannotWrite(staging, err)
	}
	if err := settle(staging, filepath.Clean(b.Config.StateDir)); err != nil {
		return Reborn{}, cannotWrite(staging, err)
	}
	return out, nil
}

// putAside gives the old state, which now stands where the new one was made, the
// name that says so. Nothing is kept where there was no state.
func (b Rebirth) putAside(dir, was, stamp string) (string, error) {
	if !hasLog(was) {
		return "", os.RemoveAll(was)
	}
	aside := dir + ".before-" + b.Verb + "-" + stamp
	if err := os.Rename(was, aside); err != nil {
		return was, cannotWrite(aside, err)
	}
	return aside, syncDir(filepath.Dir(dir))
}

// tidy ends what an interrupted run has left: a folder that was not exchanged is
// half made and goes; one that was holds the old state and is put aside.
func (b Rebirth) tidy(dir string) error {
	left, err := filepath.Glob(dir + ".beginning-*")
	if err != nil {
		return fmt.Errorf("coordinator: %s: %w", b.Verb, err)
	}
	note, _ := readNote(dir)
	for _, was := range left {
		stamp := strings.TrimPrefix(was, dir+".beginning-")
		if note.Stamp == stamp {
			b.Verb = note.Verb
			_, err = b.putAside(dir, was, stamp)
		} else {
			err = os.RemoveAll(was)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readNote(dir string) (n begunNote, ok bool) {
	data, err := os.ReadFile(filepath.Join(filepath.Clean(dir), noteFile))
	return n, err == nil && json.Unmarshal(data, &n) == nil
}

// hasLog tells whether a folder holds a server's log.
func hasLog(dir string) bool {
	for _, name := range []string{"log", "snapshots"} {
		if files, err := os.ReadDir(filepath.Join(dir, name)); err == nil && len(files) > 0 {
			return true
		}
	}
	return false
}

// swapDirs lets two folders change places in one step.
func swapDirs(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(b))
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot replace %s: it is a mount point", b), Err: err,
			Hint: "make state_dir a folder inside of the mount, and move its content there",
		}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot replace %s in one step: its file system cannot exchange two folders", b), Err: err,
			Hint: "put state_dir on a local ext4, xfs, btrfs or tmpfs",
		}
	}
	return cannotWrite(b, err)
}

func cannotWrite(path string, err error) error {
	return &cli.Error{
		Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot write %s: %v", path, err), Err: err,
		Hint: "run as the user that owns the state_dir, or as root; the folder above it must be writable and have room",
	}
}

// copyTree copies a stopped server's folder.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("coordinator: copy %s: %w", from, err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			err = os.Mkdir(target, 0o700)
		case d.Type().IsRegular():
			err = copyFile(path, target)
		}
		if err != nil {
			return cannotWrite(target, err)
		}
		return nil
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(filepath.Clean(to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = out.ReadFrom(in)
	return err
}

// settle gives a new folder to the owner of the one that it replaces, and waits
// until all of it is on the disk.
func settle(staging, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	root, err := os.OpenRoot(staging)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ok && os.Geteuid() == 0 {
			if err := root.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return err
			}
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// syncDir waits until what a folder lists is on the disk.
func syncDir(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
