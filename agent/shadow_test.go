// Claims: a node that only observes decides what it would write, from the same inputs
// as one that holds, and shows it; it follows the cap that it would hold; and it writes
// nothing at all, whatever it decides.
package agent

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/records"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/internal/testkit/emulated"
	"headroom/lease"
	"headroom/units"
)

// tree is every file below the root: what it holds, its mode and when it was written.
func (l *lab) tree() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	root := filepath.Join(l.dir, "root")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data := []byte(nil)
		if info.Mode().IsRegular() {
			data, err = os.ReadFile(path)
		}
		all[path] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.Mode(), info.ModTime())
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return all
}

// stillLab is a lab whose plant moves only when the test says so.
func stillLab(t *testing.T, shapeName string) *lab {
	t.Helper()
	return stillShape(t, emulated.Options{Shape: shapeName})
}

func stillShape(t *testing.T, o emulated.Options) *lab {
	t.Helper()
	o.Dir = t.TempDir()
	node := emulated.Start(t, o)
	return &lab{t: t, node: node, dir: o.Dir, spec: node.Spec}
}

// requested is what a node would write: microwatts of its packages, kilohertz of its policies.
func requested(t *testing.T, s *headroomv1.GetAgentStatusResponse) (uw, khz int64) {
	t.Helper()
	for _, z := range s.GetZones() {
		if z.WrittenUw != nil {
			t.Errorf("%s: %d uW written by a node that only observes", z.GetZone(), z.GetWrittenUw())
		}
		uw += z.GetRequestedUw()
	}
	for _, p := range s.GetPolicies() {
		if p.WrittenKhz != nil {
			t.Errorf("%s: %d kHz written by a node that only observes", p.GetPolicy(), p.GetWrittenKhz())
		}
		khz += p.GetRequestedKhz()
	}
	return uw, khz
}

// On each rung: every turn leaves the tree as it was, byte for byte and date for date,
// while what would be written follows the cap.
func TestShadowDecidesAndNeverWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shape string
		rung  capping.Rung
	}{
		"package limits":     {"xeon-2s", capping.RungRAPL},
		"frequency ceilings": {"epyc", capping.RungFreq},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := stillLab(t, c.shape)
			cfg := l.config("127.0.0.1:1")
			cfg.Enforce = false
			cfg.Frequency = config.Frequency{Preference: "balance_power", Turbo: config.TurboOff}
			before := l.tree()
			n := loopless(t, cfg)
			if n.machine.Ladder.Use != c.rung || n.claimed != nil {
				t.Fatalf("stands on %v, claimed the machine: %v", n.machine.Ladder.Use, n.claimed != nil)
			}
			at := instant()
			turns := func() (uw, khz int64) {
				for range 20 {
					if err := l.node.Step(period, 1); err != nil {
						t.Fatal(err)
					}
					before = l.tree()
					at = lease.Instant{Boot: at.Boot + period, Awake: at.Awake + period}
					n.turn(at)
					if after := l.tree(); !maps.Equal(before, after) {
						t.Fatalf("a turn changed %v", differing(before, after))
					}
				}
				return requested(t, n.report.details(at))
			}
			if !maps.Equal(before, l.tree()) {
				t.Errorf("the start changed %v", differing(before, l.tree()))
			}
			if low, _ := n.lease.Cap(); n.control.caps.now != 0 && n.control.caps.now != low {
				t.Errorf("cap %v before the first turn", n.control.caps.now)
			}
			lowUW, lowKHz := turns()
			// What a lease would do to a node that held: the node in this mode gets none.
			n.giveAt(t, at, 1, cfg.Power.FailSafe+(cfg.Power.Max-cfg.Power.FailSafe)/2, lease.Sprint{})
			highUW, highKHz := turns()
			if c.rung == capping.RungRAPL && !(lowUW > 0 && highUW > lowUW) || c.rung == capping.RungFreq && !(lowKHz > 0 && highKHz > lowKHz) {
				t.Errorf("would write %d uW, %d kHz under the fail-safe cap and %d uW, %d kHz under a higher one", lowUW, lowKHz, highUW, highKHz)
			}
			if s := n.report.state(at); s.GetHolding().GetState() != headroomv1.LeaseState_LEASE_STATE_OBSERVING || s.GetHolding().GetCapUw() != int64(cfg.Power.Rated) || s.GetSaved() != 0 {
				t.Errorf("told as %v with %d saved", s.GetHolding(), s.GetSaved())
			}
			if h := n.records.OnDisk(); h.State != records.StateObserving || h.Cap != cfg.Power.Rated {
				t.Errorf("held.json covers %v, %s", h.Cap, h.State)
			}
		})
	}
}

// What it shows under a cap is near what a node that holds the same cap stands at, and
// does not creep away from it while the machine draws what it likes.
func TestShadowStandsWhereAHolderWould(t *testing.T) {
	t.Parallel()
	long := func(enforce bool) units.Power {
		l := stillLab(t, "")
		cfg := l.config("127.0.0.1:1")
		cfg.Enforce = enforce
		n := loopless(t, cfg)
		at := instant()
		for range 80 {
			if err := l.node.Step(period, 1); err != nil {
				t.Fatal(err)
			}
			at = lease.Instant{Boot: at.Boot + period, Awake: at.Awake + period}
			n.turn(at)
		}
		return n.machine.Packages[0].Requested.Long
	}
	holder, shadow := long(true), long(false)
	if ratio := shadow.Watts() / holder.Watts(); ratio < 0.75 || ratio > 1.25 {
		t.Errorf("would write %v where a node that holds stands at %v", shadow, holder)
	}
}

// In a running powerd: the fail-safe cap of its configuration decides, the coordinator
// sees a node that observes, and the log says once what would be held.
func TestShadowInARunningAgent(t *testing.T) {
	t.Parallel()
	var last int64
	for _, failSafe := range []units.Power{95 * units.Watt, 140 * units.Watt} {
		l, c := newLab(t), newCoordinator(t)
		cfg := l.config(c.addr)
		cfg.Enforce, cfg.Power.FailSafe = false, failSafe
		l.forget()
		l.remember(cfg)
		original := l.controls()
		said := make(lines, 1000)
		r := runLogged(t, cfg, said)
		waitFor(t, "it reports", func() bool { return c.last().PowerUw != nil })
		var now int64
		waitFor(t, "what it would write is shown", func() bool {
			now, _ = requested(t, l.status(t))
			return now > last
		})
		last = now
		if h := c.last().GetHolding(); h.GetState() != headroomv1.LeaseState_LEASE_STATE_OBSERVING || c.lastHello().GetControlled() {
			t.Errorf("told the coordinator %v", h)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		close(said)
		var would []string
		for line := range said {
			if strings.Contains(line, "would hold") {
				would = append(would, line)
			}
		}
		if len(would) != 1 || !strings.Contains(would[0], fmt.Sprintf("cap_w=%g ", failSafe.Watts())) {
			t.Errorf("the log says %q, want what would be held, once", would)
		}
		if !equal(l.controls(), original) {
			t.Errorf("controls %v, want %v", l.controls(), original)
		}
	}
}

func TestAsIfHeld(t *testing.T) {
	t.Parallel()
	in := capping.Sample{Package: capping.Reading{Power: 200 * units.Watt, Known: true}, Elapsed: time.Second}
	for limit, want := range map[units.Power]units.Power{0: 200 * units.Watt, 60 * units.Watt: 60 * units.Watt, 250 * units.Watt: 200 * units.Watt} {
		got := asIfHeld(in, limit)
		if got.Package.Power != want || !got.Package.Known || got.Elapsed != in.Elapsed {
			t.Errorf("limit %v: %+v, want %v", limit, got, want)
		}
	}
	in.Package = capping.Reading{}
	if got := asIfHeld(in, 60*units.Watt); got.Package.Known || got.Package.Power != 0 {
		t.Errorf("unknown power became %+v", got.Package)
	}
}
