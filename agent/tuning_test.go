// Claims: preferences and turbo are written while a cap is held, saved before and put
// back after, killed at any point or not; the performance governor, firmware and a
// machine without them are said and are no failure; another writer's value is treated
// as rivals says; and none of it ever decides whether the cap is held.
package agent

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/testkit/emulated"
	"headroom/lease"
	"headroom/units"
)

const (
	policyDir   = "sys/devices/system/cpu/cpufreq/policy"
	noTurboFile = "sys/devices/system/cpu/intel_pstate/no_turbo"
	boostFile   = "sys/devices/system/cpu/cpufreq/boost"
)

// text is the first line of a file of the machine.
func (l *lab) text(path string) string {
	l.t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "root", path))
	if err != nil {
		l.t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// tunables are the texts of everything that is set beside the cap, and of what moves
// with it.
func (l *lab) tunables() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{policyDir + "*/energy_performance_preference", policyDir + "*/scaling_m??_freq", noTurboFile, boostFile} {
		files, err := filepath.Glob(filepath.Join(l.dir, "root", pattern))
		if err != nil {
			l.t.Fatal(err)
		}
		for _, f := range files {
			path, err := filepath.Rel(filepath.Join(l.dir, "root"), f)
			if err != nil {
				l.t.Fatal(err)
			}
			all[path] = l.text(path)
		}
	}
	return all
}

func epp(policy string) string { return policyDir + policy + "/energy_performance_preference" }

// tunedLab is a mounted lab, and a configuration that sets everything.
func tunedLab(t *testing.T, shape string) (*lab, config.Config) {
	t.Helper()
	l := mountedLab(t, shape)
	cfg := l.config("127.0.0.1:1")
	cfg.Frequency = config.Frequency{Preference: "balance_power", SprintPreference: "performance", Turbo: config.TurboSprint}
	return l, cfg
}

// mounted is a shape with another cpufreq driver, its tree mounted.
func mounted(shape, driver string) emulated.Options {
	return emulated.Options{Shape: shape, Driver: driver, Mount: true}
}

// giveSprint grants a cap and a sprint above it.
func (n *node) giveSprint(t *testing.T, seq uint64) {
	t.Helper()
	base := n.cfg.Power.FailSafe + 20*units.Watt
	n.give(t, seq, base, lease.Sprint{ID: "s1", Cap: base + 60*units.Watt, Duration: time.Minute, Escrow: 100_000 * units.Joule})
}

// turnUntil turns the loop, with a look at what is set beside the cap at each turn.
func (n *node) turnUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	n.spin(t, what, func() bool { n.tuner.due = 0; return ok() })
}

func differing(a, b map[string]string) (names []string) {
	for k, v := range a {
		if b[k] != v {
			names = append(names, k+": "+v+", "+b[k])
		}
	}
	return names
}

// Both kinds of switch, on both rungs: preference and turbo go with the hold and with
// the sprint, and everything is as it was after the release.
func TestTunedWhileHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine     emulated.Options
		turbo       string
		off, on     string
		preferences bool
	}{
		"Intel on RAPL":     {mounted("xeon-2s", "intel_pstate"), noTurboFile, "1", "0", true},
		"AMD by frequency":  {mounted("epyc", "amd-pstate-epp"), boostFile, "0", "1", true},
		"CPPC by frequency": {mounted("epyc", "cppc_cpufreq"), boostFile, "0", "1", false}, // switching boost sets its ceilings anew
		"CPPC on RAPL":      {mounted("xeon-2s", "cppc_cpufreq"), boostFile, "0", "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := labOf(t, c.machine)
			l.write(policyDir+"1/scaling_max_freq", "2200000") // an operator's own
			cfg := l.config("127.0.0.1:1")
			cfg.Frequency = config.Frequency{Preference: "balance_power", SprintPreference: "performance", Turbo: config.TurboSprint}
			waitFor(t, "the operator's ceiling stands", func() bool { return l.number(policyDir+"1/scaling_max_freq") == 2_200_000 })
			before := l.tunables()
			n := loopless(t, cfg)
			if changed := differing(onlyTuning(before), l.tunables()); len(changed) > 0 {
				t.Errorf("written before the cap was: %v", changed)
			}
			want := func(preference, turbo string) func() bool {
				return func() bool {
					return l.text(c.turbo) == turbo && (!c.preferences || l.text(epp("0")) == preference && l.text(epp("7")) == preference)
				}
			}
			n.turnUntil(t, "it is set while the cap is held", want("balance_power", c.off))
			n.giveSprint(t, 1)
			n.turnUntil(t, "the sprint has its own", want("performance", c.on))
			n.checkTuned(t, c.preferences, "on")
			n.give(t, 2, n.cfg.Power.FailSafe+10*units.Watt, lease.Sprint{})
			n.turnUntil(t, "the end of the sprint ends it", want("balance_power", c.off))
			n.checkTuned(t, c.preferences, "off")
			n.checkCeilings(t, l)
			if n.control.writeErr != nil || shown(n, "limit-refused") || shown(n, "limit-drift") || shown(n, tuningDriftCode) || shown(n, "tuning-refused") {
				t.Errorf("%v, items %v", n.control.writeErr, n.health.List())
			}
			if out := n.release.putBack(); out.Failed != 0 || len(out.Kept) != 0 {
				t.Errorf("%+v", out)
			}
			if changed := differing(before, l.tunables()); len(changed) > 0 {
				t.Errorf("left behind (was, is): %v", changed)
			}
			n.turn(instant())
			if changed := differing(before, l.tunables()); len(changed) > 0 {
				t.Errorf("written after the release (was, is): %v", changed)
			}
		})
	}
}

// onlyTuning leaves the ceilings out, which the frequency rung writes.
func onlyTuning(all map[string]string) map[string]string {
	some := map[string]string{}
	for path, text := range all {
		if !strings.HasSuffix(path, "_freq") {
			some[path] = text
		}
	}
	return some
}

// checkTuned demands that status tells what is asked for and what stands.
func (n *node) checkTuned(t *testing.T, preferences bool, turbo string) {
	t.Helper()
	s := n.report.details(instant())
	if got := s.GetTurbo(); got.GetRequested() != turbo || got.GetEffective() != turbo || got.GetState() != knobHeld {
		t.Errorf("turbo %v, want %s and held", got, turbo)
	}
	want := knobHeld
	if !preferences {
		want = knobAbsent
	}
	for _, p := range s.GetPolicies() {
		if p.GetEppState() != want || preferences && (p.GetEpp() == "" || p.GetEppRequested() != p.GetEpp()) || !preferences && p.GetEppText() == "" {
			t.Errorf("policy %v, want %s", p, want)
		}
	}
}

// checkCeilings demands that on the frequency rung no ceiling stands above the law's.
func (n *node) checkCeilings(t *testing.T, l *lab) {
	t.Helper()
	if n.control.rung() != rungCPUFreq {
		return
	}
	for policy, most := range n.machine.Freq.Written {
		if now := l.number("sys/devices/system/cpu/cpufreq/" + policy + "/scaling_max_freq"); now > int64(most) {
			t.Errorf("%s holds %d kHz, %v was written", policy, now, most)
		}
	}
}

// The performance governor pins preferences, firmware holds turbo, and many machines
// have neither: said in status, no health item, no failed write, nothing retried for ever.
func TestTuningThatIsNotThere(t *testing.T) {
	t.Parallel()
	t.Run("pinned and locked", func(t *testing.T) {
		t.Parallel()
		l, cfg := tunedLab(t, "xeon-2s")
		for _, p := range []string{"0", "1", "2", "3", "4", "5", "6", "7"} {
			l.write(policyDir+p+"/scaling_governor", "performance")
		}
		if err := l.node.Fault("no-turbo"); err != nil {
			t.Fatal(err)
		}
		n := loopless(t, cfg)
		n.turnUntil(t, "it is said", func() bool {
			s := n.report.details(instant())
			return s.GetPolicies()[3].GetEppState() == knobPinned && s.GetTurbo().GetState() == knobLocked
		})
		s := n.report.details(instant())
		if p := s.GetPolicies()[3]; p.GetEpp() != "performance" || p.GetEppRequested() != "balance_power" || !strings.Contains(p.GetEppText(), "governor") {
			t.Errorf("policy %v", p)
		}
		if s.GetTurbo().GetEffective() != "on" || !strings.Contains(s.GetTurbo().GetText(), "firmware") {
			t.Errorf("turbo %v", s.GetTurbo())
		}
		n.quiet(t)
		l.write(policyDir+"3/scaling_governor", "powersave")
		n.turnUntil(t, "freed, it is set", func() bool { return l.text(epp("3")) == "balance_power" })
		l.write(policyDir+"3/scaling_governor", "performance")
		n.turnUntil(t, "pinned again, that is nobody's drift", func() bool { return n.tuner.state("policy3") == knobPinned })
		n.quiet(t)
		l.write(policyDir+"3/scaling_governor", "powersave")
		n.turnUntil(t, "it stands again", func() bool { return n.tuner.state("policy3") == knobHeld })
		if out := n.release.putBack(); out.Failed != 0 {
			t.Errorf("%+v", out)
		}
		if got := l.text(epp("3")); got != "performance" {
			t.Errorf("preference %s, found was performance", got)
		}
	})
	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		l := newLab(t)
		cfg := l.config("127.0.0.1:1")
		cfg.Frequency = config.Frequency{Preference: "power", Turbo: config.TurboOff}
		n := loopless(t, cfg)
		n.turn(instant())
		s := n.report.details(instant())
		if p := s.GetPolicies()[0]; p.GetEppState() != knobAbsent || p.GetEppText() == "" || s.GetTurbo().GetState() != knobAbsent || s.GetTurbo().GetText() == "" {
			t.Errorf("policy %v, turbo %v", p, s.GetTurbo())
		}
		n.quiet(t)
	})
	t.Run("not writable", func(t *testing.T) {
		t.Parallel()
		l := labOf(t, emulated.Options{Shape: "epyc", Driver: "amd-pstate-epp"})
		path := filepath.Join(l.dir, "root", epp("0"))
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		cfg := l.config("127.0.0.1:1")
		cfg.Frequency = config.Frequency{Preference: "power", Turbo: config.TurboLeave}
		n := loopless(t, cfg)
		n.turnUntil(t, "the others are set", func() bool { return l.text(epp("7")) == "power" })
		if s := n.report.details(instant()); s.GetPolicies()[0].GetEppState() != knobRefused || s.GetPolicies()[0].GetEppText() == "" || !shown(n, "tuning-refused") {
			t.Errorf("policy %v, items %v", s.GetPolicies()[0], n.health.List())
		}
		if n.control.writeErr != nil || n.control.mode != holding {
			t.Errorf("%v, mode %v: the cap is not held", n.control.writeErr, n.control.mode)
		}
	})
}

// quiet demands that nothing was said to be wrong, and that the cap is held.
func (n *node) quiet(t *testing.T) {
	t.Helper()
	if n.health.Len() != 0 || n.control.writeErr != nil || n.tally.counters.writeErrors != 0 || n.tally.counters.drifts != 0 || n.control.mode != holding {
		t.Errorf("items %v, %v, %+v, mode %v", n.health.List(), n.control.writeErr, n.tally.counters, n.control.mode)
	}
}

// A node that only observes writes nothing, and says what stands.
func TestObservingTunesNothing(t *testing.T) {
	t.Parallel()
	l, cfg := tunedLab(t, "epyc")
	cfg.Enforce = false
	before := l.tunables()
	n := loopless(t, cfg)
	for range 3 {
		n.turn(instant())
	}
	if changed := differing(before, l.tunables()); len(changed) > 0 {
		t.Errorf("changed: %v", changed)
	}
	s := n.report.details(instant())
	if p := s.GetPolicies()[0]; p.GetEppState() != knobLeft || p.GetEppRequested() != "" || p.GetEpp() == "" || s.GetTurbo().GetState() != knobLeft || s.GetTurbo().GetEffective() != "on" {
		t.Errorf("policy %v, turbo %v", p, s.GetTurbo())
	}
}

// Another writer's preference or turbo: at once, at most once in ten seconds, or not at
// all; said each time, and its value stays at the release where it was left.
func TestTuningRivals(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{config.RivalsFight, config.RivalsTolerate, config.RivalsYield} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l, cfg := tunedLab(t, "xeon-2s")
			cfg.Rivals = mode
			n := loopless(t, cfg)
			n.turnUntil(t, "it is set", func() bool { return l.text(epp("2")) == "balance_power" && l.text(noTurboFile) == "1" })
			rewritten := map[string]int{}
			for range 3 {
				l.write(epp("2"), "performance")
				l.write(noTurboFile, "0")
				n.tuner.due = 0
				n.turn(instant())
				for path, ours := range map[string]string{epp("2"): "balance_power", noTurboFile: "1"} {
					if l.text(path) == ours {
						rewritten[path]++
					}
				}
			}
			want := map[string]int{config.RivalsFight: 3, config.RivalsTolerate: 1, config.RivalsYield: 0}[mode]
			if rewritten[epp("2")] != want || rewritten[noTurboFile] != want {
				t.Errorf("written over %v times, want %d", rewritten, want)
			}
			if i, _ := n.health.Get(tuningDriftCode); n.tally.counters.drifts == 0 || !strings.Contains(i.Text, "was written") || i.Hint == "" {
				t.Errorf("item %+v, %d drifts", i, n.tally.counters.drifts)
			}
			if n.control.writeErr != nil || shown(n, "limit-drift") {
				t.Errorf("%v, items %v: the cap has nothing to do with it", n.control.writeErr, n.health.List())
			}
			out := n.release.putBack()
			if left := l.text(epp("2")); out.Failed != 0 || mode == config.RivalsFight && left != "balance_performance" || mode == config.RivalsYield && left != "performance" {
				t.Errorf("%+v, preference %s after the release", out, left)
			}
		})
	}
}

// A powerd that does not set them any more puts back what an earlier one set, at once.
func TestTuningThatIsNotWishedForAnyMore(t *testing.T) {
	t.Parallel()
	l, cfg := tunedLab(t, "xeon-2s")
	before := l.tunables()
	n, err := start(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	if err != nil {
		t.Fatal(err)
	}
	n.records.Start()
	n.turnUntil(t, "it is set", func() bool { return l.text(epp("7")) == "balance_power" && l.text(noTurboFile) == "1" })
	n.records.Stop()
	if err := n.close(); err != nil { // as a kill would leave it
		t.Fatal(err)
	}
	cfg.Frequency = config.Frequency{SprintPreference: "performance", Turbo: config.TurboLeave}
	n = loopless(t, cfg)
	n.turnUntil(t, "preferences are left alone but for sprints", func() bool { return l.text(epp("7")) == before[epp("7")] })
	if changed := differing(before, l.tunables()); len(changed) > 0 {
		t.Errorf("left behind (was, is): %v", changed)
	}
	n.giveSprint(t, 1)
	n.turnUntil(t, "a sprint has its own", func() bool { return l.text(epp("7")) == "performance" })
	n.give(t, 2, n.cfg.Power.FailSafe+10*units.Watt, lease.Sprint{})
	n.turnUntil(t, "after it the original is back", func() bool { return l.text(epp("7")) == before[epp("7")] })
}

// A policy whose processor comes back is set again, and that is nobody's drift.
func TestTuningOfAProcessorThatWasAway(t *testing.T) {
	t.Parallel()
	l, cfg := tunedLab(t, "epyc")
	n := loopless(t, cfg)
	n.turnUntil(t, "it is set", func() bool { return l.text(epp("5")) == "balance_power" })
	l.write("sys/devices/system/cpu/cpu5/online", "0")
	n.turnUntil(t, "it is away", func() bool { return n.tuner.state("policy5") == knobOffline })
	l.write("sys/devices/system/cpu/cpu5/online", "1")
	l.write(epp("5"), "performance") // as the kernel begins anew
	n.turnUntil(t, "it is set again", func() bool { return l.text(epp("5")) == "balance_power" })
	if shown(n, tuningDriftCode) { // its ceiling may well have drifted: it was away while others were bounded
		t.Errorf("items %v", n.health.List())
	}
}

func (t *tuner) state(policy string) string {
	for _, k := range t.knobs {
		if k.policy != nil && k.policy.Name == policy {
			return k.state
		}
	}
	return ""
}

// Killed between any two writes, with sprints that begin and end: the journal has the
// original of whatever was changed, the next start adopts it, and a forced restore puts
// all of it back.
func TestKilledWhileTuning(t *testing.T) {
	t.Parallel()
	l, c := mountedLab(t, "epyc"), newCoordinator(t)
	c.refuse = errors.New("not now")
	before := l.tunables()
	cfg := l.config()
	config := filepath.Join(l.dir, "powerd.yaml")
	text := "node: n01\ndomain: rack/r1\nroot: " + cfg.Root + "\nstate_dir: " + cfg.StateDir + "\nenforce: true\n" +
		"power: {rated: " + cfg.Power.Rated.Exact() + ", floor: " + cfg.Power.Floor.Exact() + ", max: " + cfg.Power.Max.Exact() +
		", fail_safe: " + cfg.Power.FailSafe.Exact() + ", other: " + cfg.Power.Other.Exact() + ", supply_efficiency: 0.914}\n" +
		"frequency: {preference: power, sprint_preference: performance, turbo: sprint}\ncoordinators: [\"" + c.addr + "\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	changed := 0
	for i := range kills / 3 {
		child := l.child(t, config)
		if i%3 == 0 { // then sprints come and go
			waitFor(t, "it is set", func() bool { return len(differing(onlyTuning(before), l.tunables())) > 0 })
		}
		for end := time.Now().Add(20*time.Millisecond + time.Duration(rng.IntN(900))*time.Millisecond); time.Now().Before(end); {
			pause(min(time.Duration(rng.IntN(90))*time.Millisecond, time.Until(end)))
			base := cfg.Power.FailSafe + units.Power(rng.IntN(100))*units.Watt
			var s *headroomv1.Sprint
			if rng.IntN(2) == 0 {
				s = sprintFor("s"+strconv.Itoa(rng.IntN(1000)), base+50*units.Watt, 100*time.Millisecond, 1000*units.Joule)
			}
			c.offer(t, base, s)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		changed += min(1, len(differing(onlyTuning(before), l.tunables())))
		l.checkTuningSaved(t, before)
		if rng.IntN(3) == 0 {
			l.tuningBack(t, before)
		}
	}
	l.tuningBack(t, before)
	if changed == 0 {
		t.Error("no kill found a preference or turbo changed: the test hits nothing")
	}
}

// checkTuningSaved demands the original of every tunable that is not as it was found.
func (l *lab) checkTuningSaved(t *testing.T, before map[string]string) {
	t.Helper()
	j, err := originals.Load(statedir.OS{Dir: filepath.Join(l.dir, "state")})
	if err != nil {
		t.Fatalf("journal after a kill: %v", err)
	}
	saved := map[string]string{}
	if j != nil {
		for _, c := range j.Controls {
			switch c.Kind {
			case originals.Preference:
				saved[c.Path] = dvfs.EPP(c.Original).String()
			default:
				saved[c.Path] = strconv.FormatInt(c.Original, 10)
			}
		}
	}
	for path, now := range onlyTuning(l.tunables()) {
		if now != before[path] && saved[path] != before[path] {
			t.Fatalf("%s holds %s, was %s, the journal says %q", path, now, before[path], saved[path])
		}
	}
}

// tuningBack is a forced restore with the agent dead.
func (l *lab) tuningBack(t *testing.T, before map[string]string) {
	t.Helper()
	out, err := Restore(t.Context(), l.config("127.0.0.1:1"), RestoreOptions{Force: true})
	if changed := differing(before, l.tunables()); err != nil || len(out.Kept) > 0 || len(changed) > 0 {
		t.Fatalf("forced restore: %+v, %v; left behind (was, is): %v", out, err, changed)
	}
}
