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
	"strconv"
	"testing"
	"time"

	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/rapl"
	"headroom/units"
)

// kills is the least number of kills that the claim is tested with.
const kills = 36

// Lesson 14: settings outlive the program that made them; after kill -9 at any point a restore
// still brings every original back.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	before := l.controls()
	config := l.configFile(t, c.addr)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	changed := 0
	for i := 0; i < kills || changed < kills/4 && i < 4*kills; i++ { // a busy machine starts powerd late
		child := l.child(t, config)
		wait := 20*time.Millisecond + time.Duration(rng.IntN(60))*time.Millisecond // while it starts
		if i%2 == 0 {
			wait = 50*time.Millisecond + time.Duration(rng.IntN(600))*time.Millisecond // while caps move
		}
		for end := time.Now().Add(wait); time.Now().Before(end); {
			pause(min(time.Duration(rng.IntN(60))*time.Millisecond, time.Until(end)))
			c.moveAnyhow(t, rng)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if !equal(l.controls(), before) {
			changed++
		}
		l.checkJournal(t, before)
		l.checkHeld(t)
		if rng.IntN(3) == 0 {
			l.forceBack(t, before)
		}
	}
	l.forceBack(t, before)
	if changed < kills/4 {
		t.Errorf("only %d of %d kills found a control changed: the test hits nothing", changed, kills)
	}
	t.Logf("%d of %d kills found a control changed", changed, kills)
}

// moveAnyhow grants some cap, and a sprint beside every second one.
func (c *coordinator) moveAnyhow(t *testing.T, rng *rand.Rand) {
	t.Helper()
	base := units.Power(75+rng.IntN(140)) * units.Watt
	var s *headroomv1.Sprint
	if rng.IntN(2) == 0 {
		most := base + units.Power(5+rng.IntN(30))*units.Watt
		s = sprintFor("s"+strconv.Itoa(rng.IntN(1000)), most, 100*time.Millisecond, units.Energy(rng.IntN(100))*units.Joule)
	}
	c.offer(t, base, s)
}

// The same on the frequency rung: every ceiling that was changed is in the journal
// with its original, held.json allows what full load may draw, and a forced restore
// puts all of them back with the agent dead.
func TestKilledOnTheFrequencyRung(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	c.refuse = errors.New("not now")
	config := l.configFile(t, c.addr)
	before := l.ceilings(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	changed := 0
	for i := 0; i < kills/3 || changed == 0 && i < kills; i++ {
		child := l.child(t, config)
		wait := 20*time.Millisecond + time.Duration(rng.IntN(500))*time.Millisecond
		if changed == 0 {
			wait += time.Duration(i) * 50 * time.Millisecond // a busy machine starts powerd late
		}
		for end := time.Now().Add(wait); time.Now().Before(end); {
			pause(min(time.Duration(rng.IntN(60))*time.Millisecond, time.Until(end)))
			c.moveAnyhow(t, rng)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		j, err := originals.Load(statedir.OS{Dir: filepath.Join(l.dir, "state")})
		if err != nil {
			t.Fatalf("journal after a kill: %v", err)
		}
		saved := map[string]int64{}
		if j != nil {
			for _, c := range j.Controls {
				saved[c.Path] = c.Original
			}
		}
		now := l.ceilings(t)
		for path, v := range now {
			if original, ok := saved[path]; v != before[path] && (!ok || original != before[path]) {
				t.Fatalf("%s holds %d, was %d, the journal says %d (%v)", path, v, before[path], original, ok)
			}
		}
		if !equal(now, before) {
			changed++
			l.checkHeldCeilings(t, now)
		}
		if rng.IntN(3) == 0 {
			l.ceilingsBack(t, before)
		}
	}
	l.ceilingsBack(t, before)
	if changed == 0 {
		t.Error("no kill found a ceiling changed: the test hits nothing")
	}
}

// ceilings are the values of every frequency control that powerd may write.
func (l *lab) ceilings(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	root := filepath.Join(l.dir, "root")
	for _, name := range []string{"scaling_max_freq", "scaling_min_freq"} {
		files, err := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpufreq/policy*", name))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", name, err)
		}
		for _, f := range files {
			path, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = l.number(path)
		}
	}
	return all
}

// checkHeldCeilings demands that held.json allows at least what full load draws
// under the lowest ceiling that stands in the tree.
func (l *lab) checkHeldCeilings(t *testing.T, now map[string]int64) {
	t.Helper()
	var h records.HeldFile
	data, err := os.ReadFile(l.state(statedir.HeldFile))
	if errors.Is(err, fs.ErrNotExist) {
		return // killed before the first write was verified
	}
	if err != nil || json.Unmarshal(data, &h) != nil {
		t.Fatalf("held.json holds %q, %v", data, err)
	}
	cfg := l.config()
	root, err := os.OpenRoot(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	m, err := machine.Open(filesOf(t, root), &cfg, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	lowest := m.Freq.Config.Max
	for path, v := range now {
		if filepath.Base(path) == "scaling_max_freq" {
			lowest = min(lowest, units.Freq(v))
		}
	}
	if least := m.Freq.Config.Charge(lowest, m.Freq.State); h.CapW < least.Watts()-0.1 {
		t.Fatalf("ceilings down to %v may draw %v, held.json allows %v W", lowest, least, h.CapW)
	}
}

// ceilingsBack is a forced restore with the agent dead.
func (l *lab) ceilingsBack(t *testing.T, before map[string]int64) {
	t.Helper()
	out, err := Restore(t.Context(), l.config("127.0.0.1:1"), RestoreOptions{Force: true})
	if now := l.ceilings(t); err != nil || len(out.Kept) > 0 || !equal(now, before) {
		t.Fatalf("forced restore: %+v, %v\n got %v\nwant %v", out, err, now, before)
	}
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
func (l *lab) checkJournal(t *testing.T, before map[string]int64) {
	t.Helper()
	saved := map[string]int64{}
	j, err := originals.Load(statedir.OS{Dir: filepath.Join(l.dir, "state")})
	if err != nil {
		t.Fatalf("journal after a kill: %v", err)
	}
	if j != nil {
		for _, c := range j.Controls {
			saved[filepath.Base(c.Path)] = c.Original
		}
	}
	for name, now := range l.controls() {
		if original, ok := saved[name]; now != before[name] && (!ok || original != before[name]) {
			t.Fatalf("%s holds %d, was %d, the journal says %d (%v)", name, now, before[name], original, ok)
		}
	}
}

// checkHeld demands that held.json allows the limit that stands in the tree.
func (l *lab) checkHeld(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(l.state(statedir.HeldFile))
	if errors.Is(err, fs.ErrNotExist) {
		return // killed before the first write was verified
	}
	var h records.HeldFile
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
func (l *lab) forceBack(t *testing.T, before map[string]int64) {
	t.Helper()
	out, err := Restore(t.Context(), l.config("127.0.0.1:1"), RestoreOptions{Force: true})
	if err != nil || len(out.Kept) > 0 || !equal(l.controls(), before) {
		t.Fatalf("forced restore: %+v, %v\n got %v\nwant %v", out, err, l.controls(), before)
	}
}

// Lesson 15: a start that finds the journal of a killed powerd writes the fail-safe
// cap before it opens any stream, and keeps the first before.
func TestAdoptionWritesTheFailSafeCapBeforeAnyNetwork(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	before := l.controls()
	child := l.child(t, l.configFile(t, c.addr))
	waitFor(t, "the cap is carried out", func() bool { return c.acknowledged() && l.long() > 100*units.Watt })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	n, err := start(l.config(c.addr), testLog(t), statedir.OS{Dir: filepath.Join(l.dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	if !failSafeLong(l.long()) || n.exchange.streams.Count() != 0 {
		t.Errorf("limit %v after the start, want the fail-safe cap's", l.long())
	}
	if h := l.held(); h.State != "fail-safe" || h.CapW != 95 {
		t.Errorf("held.json after the adoption: %+v", h)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
	l.checkJournal(t, before)
	l.forceBack(t, before)
}
