// Package recovery starts a new incarnation of a cluster on one stopped server, from a
// snapshot file or from the log of a surviving server; and it reads the log of a stopped server.
//
// The one idea: the new state is written to a folder beside the old one; then the two are
// exchanged in one step. If it is interrupted, the server's folder has either the old state or
// the new one, complete. The new cluster has this server only; the others join it empty, so no
// two servers can both claim to have the state.
//
// What it never does: change a running server, trust saved budgets, or delete the old state.
package recovery

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"headroom/consensus"
	"headroom/coordinator/denials"
	"headroom/coordinator/members"
	"headroom/coordinator/snapshot"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// Server is a stopped server.
type Server struct {
	ID, StateDir string
	// Raft is its own raft address, Founders are the configured servers of the cluster.
	Raft     string
	Founders []consensus.Server
}

// Recovery starts an incarnation of a cluster on one stopped server. The other servers
// that are named join it empty, and become voters once they are stable.
type Recovery struct {
	// Server is the stopped server.
	Server Server
	// Verb is "restore" or "recover".
	Verb string
	// Budgets has the budget of every domain: the saved ones may be out of date.
	Budgets map[string]units.Power
	// Servers are the servers of the new incarnation, this one included.
	Servers []members.Server
	// KeepTokens names the tokens that stay valid, by id or name. The others are
	// dropped: revocations after the end of the saved state are unknown.
	KeepTokens []string
	// LongestLease is the longest lease that nodes may hold and that the saved state does not
	// have; 0 is unknown: then the longest possible lease is waited for.
	LongestLease time.Duration
	// Actor, Reason and RequestID are as in every change.
	Actor, Reason, RequestID string
	// Now is the wall clock.
	Now time.Time
	// DryRun does everything and keeps nothing.
	DryRun bool
	// after is called after each step; tests end the work there.
	after func(step string)
}

// Result is what a Recovery has done, or would do.
type Result struct {
	Incarnation uint64
	Revision    uint64
	Nodes       int
	Domains     []ledger.Domain
	// Aside is where the old state is kept; empty if there was none.
	Aside string
	// Already reports whether the same request was carried out before; then nothing was done now.
	Already bool
	// End is the end of the recovered log; nil for a snapshot.
	End *consensus.End
}

// noteFile names, in a server's folder, the request that made its state.
const noteFile = "begun.json"

// begunNote is the content of noteFile.
type begunNote struct {
	Verb        string    `json:"verb"`
	RequestID   string    `json:"request_id"`
	Incarnation uint64    `json:"incarnation"`
	At          time.Time `json:"at"`
	Stamp       string    `json:"stamp"`
}

// Renew prepares a restored state for a new incarnation; see ledger.State.Recover.
//
// The incarnation is numbered by the clock. Counting on from the saved one would
// give the same number twice when the same snapshot is restored twice, and nodes
// could not tell the grants of the first time from those of the second. Where the
// clock is wrong, nodes that have heard of a higher one show it; see reincarnate.
func (b Recovery) Renew(st *ledger.State) error {
	if err := b.named(st); err != nil {
		return err
	}
	// What this server has acknowledged may be of a later incarnation than the state that is left.
	st.Epoch.Incarnation = max(st.Epoch.Incarnation, consensus.ReadAcknowledged(b.Server.StateDir).Incarnation)
	err := st.Recover(b.Budgets, b.Now.UnixMicro(), b.Actor, cmp.Or(b.Reason, b.Verb), b.KeepTokens...)
	if errors.Is(err, ledger.ErrUnknownToken) {
		return &cli.Error{
			Code: "unknown-token", Exit: cli.ExitUsage, Message: view.Plain(err), Err: err, RequestID: b.RequestID,
			Hint: "--keep-token needs the name or id of a token in the saved state",
		}
	}
	if err != nil {
		return &cli.Error{
			Code: "infeasible", Exit: cli.ExitRefused, Message: view.Plain(err), Err: err, RequestID: b.RequestID,
			Hint: "coordinator domain list shows rating and margin of each domain, if another server still answers",
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

// named requires the budget of every domain, and no other. The snapshot may hold
// older and higher ones.
func (b Recovery) named(st *ledger.State) error {
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

func (b Recovery) result(st *ledger.State) Result {
	out := Result{Incarnation: st.Epoch.Incarnation, Revision: st.Revision, Nodes: len(st.Nodes)}
	for _, name := range slices.Sorted(maps.Keys(st.Domains)) {
		out.Domains = append(out.Domains, st.Domains[name])
	}
	return out
}

// End returns where the log of this stopped server ends.
func (s Server) End() (consensus.End, error) { return consensus.ReadEnd(s.log(s.StateDir)) }

// ReadLog calls each for the entries of this stopped server's log, from index from
// on, in order, until it returns an error.
func (s Server) ReadLog(from uint64, each func(consensus.Entry) error) error {
	return consensus.ReadEntries(s.log(s.StateDir), from, each)
}

// log is how the log of this server in dir is opened while nothing runs.
func (s Server) log(dir string) consensus.Config {
	return consensus.Config{
		ID: s.ID, Servers: []consensus.Server{{ID: s.ID, Address: s.Raft}}, Dir: dir,
		Fatal: func(error) {}, Logger: slog.New(slog.DiscardHandler),
	}
}

// Restore starts the incarnation from a snapshot.
func (b Recovery) Restore(h snapshot.Header, st *ledger.State) (Result, error) {
	if err := b.Renew(st); err != nil {
		return Result{}, err
	}
	return b.replace(func(staging string) (Result, error) {
		state, err := st.Snapshot()
		if err != nil {
			return Result{}, err
		}
		err = consensus.Plant(b.Server.log(staging), consensus.Seed{
			State: state, Term: max(1, h.Term), Index: h.Index + 1, Founders: b.Server.Founders,
		})
		return b.result(st), err
	})
}

// Recover starts the incarnation from this server's own log.
func (b Recovery) Recover() (Result, error) {
	return b.replace(func(staging string) (Result, error) {
		if err := copyTree(b.Server.StateDir, staging); err != nil {
			return Result{}, err
		}
		b.step("copied")
		m := &renewing{Machine: statemachine.New(), b: b}
		m.OnOutdated = func(err error) { m.failed = errors.Join(m.failed, err) }
		err := consensus.Recover(b.Server.log(staging), m, b.Server.Founders)
		if m.failed != nil { // the cause, not only that it failed
			return Result{}, m.failed
		}
		var out Result
		m.View(func(st *ledger.State) { out = b.result(st) })
		return out, err
	})
}

// renewing is the state machine of a log that is being recovered: all entries of the log
// have been applied when its snapshot is taken.
type renewing struct {
	*statemachine.Machine
	b      Recovery
	failed error
}

// Snapshot implements consensus.Machine.
func (m *renewing) Snapshot() ([]byte, error) {
	if m.failed == nil {
		m.Edit(func(st *ledger.State) { m.failed = m.b.Renew(st) })
	}
	if m.failed != nil {
		return nil, m.failed
	}
	return m.Machine.Snapshot()
}

func (b Recovery) step(name string) {
	if b.after != nil {
		b.after(name)
	}
}

// replace writes a new state to a folder beside this server's and exchanges the
// two. With dry nothing is kept.
func (b Recovery) replace(plant func(staging string) (Result, error)) (Result, error) {
	dir := filepath.Clean(b.Server.StateDir)
	release, err := consensus.Hold(dir)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = release() }()
	if err := b.tidy(dir); err != nil {
		return Result{}, err
	}
	if n, ok := readNote(dir); ok && b.RequestID != "" && n.RequestID == b.RequestID {
		return Result{Incarnation: n.Incarnation, Already: true}, nil
	}
	stamp := b.Now.UTC().Format("20060102T150405Z")
	staging := dir + ".beginning-" + stamp
	out, err := b.stage(staging, stamp, plant)
	if err != nil || b.DryRun {
		return out, errors.Join(err, os.RemoveAll(staging))
	}
	b.step("staged")
	if err := swapDirs(staging, dir); err != nil {
		return Result{}, errors.Join(err, os.RemoveAll(staging))
	}
	b.step("exchanged")
	out.Aside, err = b.putAside(dir, staging, stamp)
	return out, err
}

// stage writes the new state to the folder staging, synced to disk.
func (b Recovery) stage(staging, stamp string, plant func(string) (Result, error)) (Result, error) {
	if err := os.Mkdir(staging, 0o700); err != nil {
		return Result{}, cannotWrite(staging, err)
	}
	out, err := plant(staging)
	if err != nil {
		return Result{}, err
	}
	b.step("planted")
	if err := denials.Carry(b.Server.StateDir, staging); err != nil {
		return Result{}, cannotWrite(staging, err)
	}
	note, err := json.Marshal(begunNote{Verb: b.Verb, RequestID: b.RequestID, Incarnation: out.Incarnation, At: b.Now.UTC(), Stamp: stamp})
	if err != nil {
		return Result{}, fmt.Errorf("coordinator: %s: %w", b.Verb, err)
	}
	if err := os.WriteFile(filepath.Join(staging, noteFile), append(note, '\n'), 0o600); err != nil {
		return Result{}, cannotWrite(staging, err)
	}
	if err := settle(staging, filepath.Clean(b.Server.StateDir)); err != nil {
		return Result{}, cannotWrite(staging, err)
	}
	return out, nil
}

// putAside renames the old state, which is now in the staging folder; the new
// name says that it is the old state. Nothing is kept if there was no state.
func (b Recovery) putAside(dir, was, stamp string) (string, error) {
	if !HasLog(was) {
		return "", os.RemoveAll(was)
	}
	aside := dir + ".before-" + b.Verb + "-" + stamp
	if err := os.Rename(was, aside); err != nil {
		return was, cannotWrite(aside, err)
	}
	return aside, syncDir(filepath.Dir(dir))
}

// tidy cleans up after an interrupted run: a folder that was not exchanged is
// incomplete and is removed; one that was exchanged holds the old state and is put aside.
func (b Recovery) tidy(dir string) error {
	left, err := filepath.Glob(dir + ".beginning-*")
	if err != nil {
		return fmt.Errorf("coordinator: %s: %w", b.Verb, err)
	}
	note, _ := readNote(dir)
	for _, was := range left {
		if stamp := strings.TrimPrefix(was, dir+".beginning-"); note.Stamp == stamp {
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

// HasLog reports whether a folder holds a server's log.
func HasLog(dir string) bool {
	for _, name := range []string{"log", "snapshots"} {
		if files, err := os.ReadDir(filepath.Join(dir, name)); err == nil && len(files) > 0 {
			return true
		}
	}
	return false
}
