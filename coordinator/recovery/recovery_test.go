// Claims: wherever restoring or recovering is cut short, the folder holds the old state or the
// new one; the old state is kept aside; a request is carried out once; nothing is done
// without every budget, in a dry run, or while a server runs.
package recovery

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/members"
	"headroom/coordinator/snapshot"
	"headroom/coordinator/statemachine"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// onDisk is a stopped server of one on a real folder, and the Recovery of it.
func onDisk(t *testing.T, parent string) Recovery {
	t.Helper()
	b := Recovery{
		Server: Server{ID: "c1", StateDir: filepath.Join(parent, "state"), Raft: "127.0.0.1:2", Founders: []consensus.Server{{ID: "c1", Address: "127.0.0.1:2"}}},
		Verb:   "restore", Budgets: map[string]units.Power{"site/lab": 300 * units.Watt, "rack/r1": 200 * units.Watt}, Servers: []members.Server{{ID: "c1", RPC: "127.0.0.1:1", Raft: "127.0.0.1:2"}},
		Actor: "mia", Reason: "a drill", RequestID: "r1", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	h, st := savedState(t)
	old := b
	old.RequestID, old.Now = "r0", b.Now.Add(-time.Hour)
	old.Budgets = map[string]units.Power{"site/lab": 700 * units.Watt, "rack/r1": 600 * units.Watt}
	if _, err := old.Restore(h, st); err != nil {
		t.Fatal(err)
	}
	return b
}

// savedState is a state with a power tree and a node, and its header.
func savedState(t *testing.T) (snapshot.Header, *ledger.State) {
	t.Helper()
	m := statemachine.New()
	for _, c := range []ledger.Command{
		{Lead: &ledger.Lead{Server: "c1"}},
		{Found: &ledger.Found{Domains: ledger.PlainDomains([]budget.Domain{
			{Name: "site/lab", Budget: 900 * units.Watt}, {Name: "rack/r1", Parent: "site/lab", Budget: 800 * units.Watt},
		})}},
		{Tick: &ledger.Tick{Seen: []ledger.Sighting{{
			Node: "n1", MachineID: "m1", Process: 1, Domain: "rack/r1", Rated: 250 * units.Watt, Floor: 60 * units.Watt, Max: 200 * units.Watt, FailSafe: 80 * units.Watt, Weight: 1, Controlled: true,
		}}}},
		{Tick: &ledger.Tick{Admit: []string{"n1"}}},
	} {
		c.Epoch.Incarnation, c.Epoch.Term = 1, 3
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := m.Apply(7, data).(statemachine.Applied); !ok || a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	state, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var st *ledger.State
	m.View(func(s *ledger.State) { st = s })
	h := snapshot.HeaderOf(st, state)
	h.Version, h.Server, h.Index, h.Saved = "1.2.3", "c1", 7, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return h, st
}

// budgetIn is the site's budget in the log of a stopped server, and its incarnation.
func budgetIn(t *testing.T, b Recovery) (units.Power, uint64) {
	t.Helper()
	cfg := b.Server.log(b.Server.StateDir)
	_, net := raft.NewInmemTransport("127.0.0.1:2")
	cfg.Transport = net
	m := statemachine.New()
	g, err := consensus.Open(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	var budget units.Power
	var incarnation uint64
	m.View(func(s *ledger.State) { budget, incarnation = s.Domains["site/lab"].Budget, s.Epoch.Incarnation })
	return budget, incarnation
}

type crash struct{ at string }

// Wherever restoring or recovering is cut short, the folder holds the old state or
// the new one; the next try leaves exactly one of each.
func TestInterruptedRecovery(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"restore", "recover"} {
		steps := []string{"planted", "staged", "exchanged"}
		if verb == "recover" {
			steps = append([]string{"copied"}, steps...)
		}
		for _, at := range steps {
			t.Run(verb+" "+at, func(t *testing.T) {
				t.Parallel()
				b := onDisk(t, t.TempDir())
				b.Verb = verb
				b.after = func(step string) {
					if step == at {
						panic(crash{step})
					}
				}
				interrupted(t, b)
				want, keeps := 700*units.Watt, 1
				if at == "exchanged" { // the second try has the state of the first to keep too
					want, keeps = 300*units.Watt, 2
				}
				if got, _ := budgetIn(t, b); got != want {
					t.Errorf("interrupted after %s: budget %v, want %v", at, got, want)
				}
				b.after, b.RequestID, b.Now = nil, "r2", b.Now.Add(time.Minute)
				if _, err := do(t, b); err != nil {
					t.Fatal(err)
				}
				if got, _ := budgetIn(t, b); got != 300*units.Watt {
					t.Errorf("tried again: budget %v", got)
				}
				kept, _ := filepath.Glob(b.Server.StateDir + ".before-*")
				left, _ := filepath.Glob(b.Server.StateDir + ".beginning-*")
				if len(left) != 0 || len(kept) != keeps {
					t.Errorf("kept %v, left %v", kept, left)
				}
			})
		}
	}
}

func do(t *testing.T, b Recovery) (Result, error) {
	t.Helper()
	if b.Verb == "recover" {
		return b.Recover()
	}
	h, st := savedState(t)
	return b.Restore(h, st)
}

func interrupted(t *testing.T, b Recovery) {
	t.Helper()
	defer func() {
		if _, ok := recover().(crash); !ok {
			t.Error("it was not interrupted")
		}
	}()
	_, _ = do(t, b)
}

// Restoring keeps the old state aside, is carried out once, names what is missing,
// and changes nothing in a dry run, while a server runs, or without every budget.
func TestRestoreOnDisk(t *testing.T) {
	t.Parallel()
	b := onDisk(t, t.TempDir())
	was := uint64(b.Now.Add(-time.Hour).UnixMilli())
	unchanged := func(what string) {
		t.Helper()
		if got, n := budgetIn(t, b); got != 700*units.Watt || n != was {
			t.Errorf("%s: budget %v, incarnation %d", what, got, n)
		}
	}
	dry := b
	dry.DryRun = true
	if r, err := do(t, dry); err != nil || r.Incarnation != was+3_600_000 || r.Nodes != 1 || len(r.Domains) != 2 || r.Aside != "" {
		t.Errorf("dry run: %+v, %v", r, err)
	}
	unchanged("dry run")

	few := b
	few.Budgets = map[string]units.Power{"site/lab": 300 * units.Watt}
	_, err := do(t, few)
	if exitCode(err) != cli.ExitRefused || !strings.Contains(err.Error(), "rack/r1 (it had 800.0 W)") {
		t.Errorf("a budget is missing: %v", err)
	}
	strange := b
	strange.Budgets = maps.Clone(b.Budgets)
	strange.Budgets["rack/r9"] = units.Watt
	if _, err := do(t, strange); exitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "rack/r9") {
		t.Errorf("an unknown domain: %v", err)
	}
	zero := b
	zero.Budgets = map[string]units.Power{"site/lab": 300 * units.Watt, "rack/r1": 0}
	if _, err := do(t, zero); exitCode(err) != cli.ExitRefused {
		t.Errorf("no watts: %v", err)
	}
	release, err := consensus.Hold(b.Server.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"restore", "recover"} {
		b := b
		b.Verb = verb
		if _, err := do(t, b); !errors.Is(err, consensus.ErrInUse) || exitCode(err) != cli.ExitConflict {
			t.Errorf("%s while a server runs: %v", verb, err)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	unchanged("refusals")

	r, err := do(t, b)
	if err != nil || r.Already || !strings.HasSuffix(r.Aside, "state.before-restore-20260102T030405Z") {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, n := budgetIn(t, b); got != 300*units.Watt || n != was+3_600_000 {
		t.Errorf("restored: budget %v, incarnation %d", got, n)
	}
	stuck := b // a clock that stands still or is set back: never the same number again
	stuck.RequestID, stuck.Server.StateDir = "r9", filepath.Join(t.TempDir(), "other")
	h, st := savedState(t)
	st.Epoch.Incarnation = was + 7_200_000
	if r, err := stuck.Restore(h, st); err != nil || r.Incarnation <= was+7_200_000 {
		t.Errorf("with a clock that is wrong: %+v, %v", r, err)
	}
	old := b
	old.Server.StateDir = r.Aside
	if got, _ := budgetIn(t, old); got != 700*units.Watt {
		t.Errorf("kept aside: budget %v", got)
	}
	if r, err := do(t, b); err != nil || !r.Already {
		t.Errorf("the same request again: %+v, %v", r, err)
	}
	again := b
	again.Verb, again.RequestID, again.Now = "recover", "r3", b.Now.Add(time.Hour)
	if r, err := do(t, again); err != nil || r.Incarnation != was+7_200_000 || !strings.HasSuffix(r.Aside, "state.before-recover-20260102T040405Z") {
		t.Errorf("recovered after that: %+v, %v", r, err)
	}
	info, err := os.Stat(b.Server.StateDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Exit
	}
	return -1
}

// The log is lost and an older state is left: the new incarnation is above the one that the
// server has acknowledged, whatever its clock says.
func TestIncarnationAboveTheAcknowledged(t *testing.T) {
	t.Parallel()
	b := onDisk(t, t.TempDir())
	_, old := budgetIn(t, b)
	known := old + 1e12
	line := fmt.Appendf(nil, `{"format":1,"server":"c1","incarnation":%d}`, known)
	mark := fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli)), line)
	if err := os.WriteFile(filepath.Join(b.Server.StateDir, "acknowledged"), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Verb = "recover"
	if _, err := do(t, b); err != nil {
		t.Fatal(err)
	}
	if _, got := budgetIn(t, b); got <= known {
		t.Errorf("incarnation %d begins after %d was acknowledged", got, known)
	}
}
