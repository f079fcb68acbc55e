// Claims: kill -9 at any point of powerd's life leaves a journal that holds the
// original of every control that was changed, and held.json that allows whatever
// the hardware holds; from there a forced restore puts every control back exactly.
package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"headroom/rapl"
	"headroom/units"
)

// kills is the least number of kills that the claim is tested with.
const kills = 36

func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	originals := l.controls()
	config := l.configFile(t, c.addr)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	changed := 0
	for i := range kills {
		child := l.child(t, config)
		wait := 20*time.Millisecond + time.Duration(rng.IntN(60))*time.Millisecond // while it starts
		if i%2 == 0 {
			wait = 50*time.Millisecond + time.Duration(rng.IntN(600))*time.Millisecond // while caps move
		}
		for end := time.Now().Add(wait); time.Now().Before(end); {
			pause(min(time.Duration(rng.IntN(60))*time.Millisecond, time.Until(end)))
			c.grant(t, units.Power(75+rng.IntN(160))*units.Watt)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if !equal(l.controls(), originals) {
			changed++
		}
		l.checkJournal(t, originals)
		l.checkHeld(t)
		if rng.IntN(3) == 0 {
			l.forceBack(t, originals)
		}
	}
	l.forceBack(t, originals)
	if changed < kills/4 {
		t.Errorf("only %d of %d kills found a control changed: the test hits nothing", changed, kills)
	}
	t.Logf("%d of %d kills found a control changed", changed, kills)
}

// pause waits without sleeping through a cancelled test.
func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// child starts powerd as a process of its own.
func (l *lab) child(t *testing.T, config string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0]) // this very test binary; the test kills it
	cmd.Env = append(os.Environ(), childConfig+"="+config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("powerd said:\n%s", out.String())
		}
	})
	return cmd
}

func (l *lab) configFile(t *testing.T, coordinator string) string {
	t.Helper()
	cfg := l.config()
	text := "node: n01\ndomain: rack/r1\nroot: " + cfg.Root + "\nstate_dir: " + cfg.StateDir + "\nenforce: true\n" +
		"power: {rated: 245W, floor: 70W, max: 240W, fail_safe: 95W, other: 22W, supply_efficiency: 0.92}\n" +
		"coordinators: [\"" + coordinator + "\"]\n"
	path := filepath.Join(l.dir, "powerd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkJournal demands the original of every control that is not as it was found.
func (l *lab) checkJournal(t *testing.T, originals map[string]int64) {
	t.Helper()
	saved := map[string]int64{}
	j, err := loadJournal(osDisk{filepath.Join(l.dir, "state")})
	if err != nil {
		t.Fatalf("journal after a kill: %v", err)
	}
	if j != nil {
		for _, c := range j.Controls {
			saved[filepath.Base(c.Path)] = c.Original
		}
	}
	for name, now := range l.controls() {
		if original, ok := saved[name]; now != originals[name] && (!ok || original != originals[name]) {
			t.Fatalf("%s holds %d, was %d, the journal says %d (%v)", name, now, originals[name], original, ok)
		}
	}
}

// checkHeld demands that held.json allows the limit that stands in the tree.
func (l *lab) checkHeld(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(l.state(heldFile))
	if errors.Is(err, fs.ErrNotExist) {
		return // killed before the first write was verified
	}
	var h held
	if err != nil || json.Unmarshal(data, &h) != nil {
		t.Fatalf("held.json holds %q, %v", data, err)
	}
	for _, limit := range h.Limits {
		if limit.Constraint == rapl.LongTerm && l.long() > limit.WrittenUw+rapl.Rounding {
			t.Fatalf("the hardware holds %v, held.json allows %v", l.long(), limit.WrittenUw)
		}
	}
	if len(h.Limits) == 0 && h.CapW != 245 {
		t.Fatalf("held.json without limits allows %v W, want what the node is rated", h.CapW)
	}
}

// forceBack is `powerd limit restore --force` with the agent dead.
func (l *lab) forceBack(t *testing.T, originals map[string]int64) {
	t.Helper()
	out, err := restoreLimits(t.Context(), l.config("127.0.0.1:1"), restoreOptions{force: true})
	if err != nil || len(out.kept) > 0 || !equal(l.controls(), originals) {
		t.Fatalf("forced restore: %+v, %v\n got %v\nwant %v", out, err, l.controls(), originals)
	}
}

// A start that finds the journal of a killed powerd writes the fail-safe cap
// before it opens any stream, and keeps the first originals.
func TestAdoptionWritesTheFailSafeCapBeforeAnyNetwork(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	originals := l.controls()
	child := l.child(t, l.configFile(t, c.addr))
	waitFor(t, "the cap is carried out", func() bool { return c.acknowledged() && l.long() > 100*units.Watt })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	n, err := start(l.config(c.addr), testLog(t), osDisk{filepath.Join(l.dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	if !failSafeLong(l.long()) || len(n.links) != 0 {
		t.Errorf("limit %v after the start, want the fail-safe cap's", l.long())
	}
	if h := l.held(); h.State != "fail-safe" || h.CapW != 95 {
		t.Errorf("held.json after the adoption: %+v", h)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
	l.checkJournal(t, originals)
	l.forceBack(t, originals)
}
