// Claims: from runs alone, at any cap, the speed-up comes out, and the peak where runs have shown it; too few runs, runs that
// are all alike and runs that lie anywhere give no curve; what has changed is forgotten; a job held at its peak goes beyond
// it rarely, and never where it may not; what was written is read again, and what is invalid is refused by its place.
package runs_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/containers"
	"headroom/jobs/scaling/runs"
)

// peaked has its peak at 10 containers, amdahl none.
func peaked(n float64) float64 { return n / (1 + 0.01*(n-1) + 0.0099*n*(n-1)) }
func amdahl(n float64) float64 { return 1 / (0.2 + 0.8/n) }
func linear(n float64) float64 { return n }

// run is a run on n containers of 100 tasks that take 5 s on one, under a cap that leaves a part of the power, with noise.
func run(r *rand.Rand, speedup func(float64) float64, n, power, noise float64) runs.Run {
	each := 5 * n / speedup(n) * math.Exp(noise*r.NormFloat64())
	if power > 0 {
		each *= math.Pow(power, -0.7)
	}
	return runs.Run{Containers: n, Tasks: 100, Busy: 100 * each, Power: power}
}

func note(t *testing.T, b *runs.Book, name string, all ...runs.Run) {
	t.Helper()
	for _, x := range all {
		testkit.Check(t, b.Note(name, x))
		if b.Due(name) {
			b.Learn(name)
		}
	}
}

func drawn(r *rand.Rand, count int, speedup func(float64) float64, most, noise float64) (all []runs.Run) {
	for range count {
		all = append(all, run(r, speedup, 1+math.Floor(most*r.Float64()), 0.5+0.5*r.Float64(), noise))
	}
	return all
}

func shape(t *testing.T, b *runs.Book, name string) (*runs.Advice, *containers.Curve) {
	t.Helper()
	a := b.Advise(name, false)
	if a == nil {
		t.Fatalf("%s: no curve", name)
	}
	return a, testkit.Need(containers.NewCurve(a.Points))(t)
}

func TestLearned(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		speedup func(float64) float64
		types   string
		peak    int
	}{"peaked": {peaked, "IV", 10}, "amdahl": {amdahl, "III", 0}, "linear": {linear, "I", 0}} {
		var b runs.Book
		note(t, &b, name, drawn(rand.New(rand.NewPCG(3, 1)), 16, x.speedup, 28, 0.03)...)
		a, c := shape(t, &b, name)
		if (c.Peak() != 0) != (x.peak != 0) || math.Abs(float64(c.Peak()-x.peak)) > 2 || a.Error > 0.06 || a.Runs < 9 || name != "linear" && a.Type != x.types {
			t.Errorf("%s: peak %d, %+v", name, c.Peak(), a)
		}
		for _, n := range []int{4, 8, 16, 24} {
			got, want := c.Speedup(n)/c.Speedup(2), x.speedup(float64(n))/x.speedup(2)
			if x.peak > 0 && n > x.peak {
				want = x.speedup(float64(x.peak)) / x.speedup(2)
			}
			if math.Abs(got/want-1) > 0.12 {
				t.Errorf("%s: %v times as fast on %d as on 2, want %v", name, got, n, want)
			}
		}
	}
}

func TestNotKnown(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 1))
	alike := make([]runs.Run, 12)
	for i := range alike {
		alike[i] = run(r, peaked, 20, 1, 0.02)
	}
	for name, all := range map[string][]runs.Run{
		"too few":  drawn(r, 5, peaked, 28, 0.02),
		"alike":    alike,
		"anywhere": drawn(r, 20, peaked, 28, 0.8),
	} {
		var b runs.Book
		note(t, &b, name, all...)
		if a := b.Advise(name, false); a != nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	var b runs.Book
	note(t, &b, "within", drawn(r, 16, peaked, 8, 0.02)...) // nothing beyond the peak was seen
	if _, c := shape(t, &b, "within"); c.Peak() != 0 {
		t.Errorf("a peak of %d that no run has shown", c.Peak())
	}
	if b.Advise("other", true) != nil {
		t.Error("a name that has not run has a curve")
	}
}

// The program has changed: it scales now. Three runs are enough to drop the old curve, and further ones show the new one.
func TestContradicted(t *testing.T) {
	t.Parallel()
	var b runs.Book
	r := rand.New(rand.NewPCG(7, 1))
	note(t, &b, "a", drawn(r, 16, peaked, 28, 0.02)...)
	if _, c := shape(t, &b, "a"); c.Peak() == 0 {
		t.Fatal("no peak")
	}
	faster := func(n float64) float64 { return 2 * linear(n) }
	note(t, &b, "a", run(r, faster, 10, 1, 0.02), run(r, faster, 9, 1, 0.02))
	if b.Advise("a", false) == nil {
		t.Error("forgotten after two runs")
	}
	note(t, &b, "a", run(r, faster, 10, 1, 0.02))
	if a := b.Advise("a", false); a != nil {
		t.Errorf("not forgotten: %+v", a)
	}
	note(t, &b, "a", drawn(r, 16, faster, 28, 0.02)...)
	if a, c := shape(t, &b, "a"); c.Peak() != 0 || a.Type == "IV" {
		t.Errorf("peak %d, %+v", c.Peak(), a)
	}
}

// A job held at its peak goes beyond it once in nine runs, and only where it may.
func TestExplores(t *testing.T) {
	t.Parallel()
	var b runs.Book
	r := rand.New(rand.NewPCG(9, 1))
	note(t, &b, "a", drawn(r, 16, peaked, 28, 0.02)...)
	explored, asked := 0, 36
	for range asked {
		a := b.Advise("a", true)
		if a == nil {
			t.Fatal("the curve is lost")
		}
		c := testkit.Need(containers.NewCurve(a.Points))(t)
		if b.Advise("a", false).Exploring {
			t.Error("a job that may not explore does")
		}
		if a.Exploring {
			explored++
			if c.Peak() < 12 || c.Peak() > 18 {
				t.Errorf("lets it have %d containers", c.Peak())
			}
		}
		note(t, &b, "a", run(r, peaked, float64(c.Peak()), 1, 0.02))
	}
	if explored < asked/18 || explored > asked/8 {
		t.Errorf("explored %d times of %d", explored, asked)
	}
}

// Runs that are all alike show nothing: one is held at half as many containers, where it may be.
func TestProbes(t *testing.T) {
	t.Parallel()
	var b runs.Book
	r := rand.New(rand.NewPCG(11, 1))
	probed := 0
	for range 12 {
		n := 24.0
		if a := b.Advise("a", true); a != nil {
			if c := testkit.Need(containers.NewCurve(a.Points))(t); c.Peak() > 0 {
				n = min(n, float64(c.Peak()))
			}
			if a.Exploring {
				probed++
			}
		}
		note(t, &b, "a", run(r, peaked, n, 1, 0.02))
	}
	if _, c := shape(t, &b, "a"); c.Peak() == 0 || probed < 2 || probed > 4 {
		t.Errorf("peak %d after %d probes", c.Peak(), probed)
	}
}

func TestWrittenAndRead(t *testing.T) {
	t.Parallel()
	var b, back runs.Book
	r := rand.New(rand.NewPCG(13, 1))
	note(t, &b, "a", drawn(r, 10, peaked, 28, 0.02)...)
	note(t, &b, "b", drawn(r, 2, peaked, 28, 0.02)...)
	for i := range 1100 {
		testkit.Check(t, b.Note(strings.Repeat("c", 1+i%200)+string(rune('a'+i/200)), run(r, peaked, 3, 0, 0.02)))
		testkit.Check(t, b.Note("a", run(r, peaked, 3, 0.7, 0.02)))
	}
	text := testkit.Need(json.Marshal(&b))(t)
	testkit.Check(t, json.Unmarshal(text, &back))
	if all, curves := back.Names(); all != 1000 || curves != 1 || len(text) > 1<<20 {
		t.Errorf("%d names, %d curves, %d bytes", all, curves, len(text))
	}
	if again := testkit.Need(json.Marshal(&back))(t); string(again) != string(text) {
		t.Error("what was read is written in another way")
	}
	for text, want := range map[string]string{
		`{"names":[{"name":"a","runs":[{"containers":3,"tasks":1,"busy_s":1},{"containers":0,"tasks":1,"busy_s":1}]}]}`: "names[0].runs[1]: runs: bad run: containers is 0",
		`{"names":[{"name":"a","runs":[{"containers":3,"tasks":0,"busy_s":1}]}]}`:                                       "tasks is 0",
		`{"names":[{"name":"a","runs":[{"containers":3,"tasks":1,"busy_s":-1}]}]}`:                                      "busy_s is -1",
		`{"names":[{"name":"a","runs":[{"containers":3,"tasks":1,"busy_s":1,"power":7}]}]}`:                             "power is 7",
		`{"names":[null]}`: "names[0]",
		`{"names":[{"name":"a","runs":[]},{"name":"a","runs":[]}]}`: "names[1]",
		`{"names":[{"name":"a","runs":[],"curve":{"points":[{"Containers":1,"Speedup":1},{"Containers":1,"Speedup":2}],"runs":6,"type":"I","error":0,"single_s":1}}]}`:                              "points[1].containers is 1",
		`{"names":[{"name":"a","runs":[],"curve":{"points":[{"Containers":1,"Speedup":1},{"Containers":3,"Speedup":2},{"Containers":4,"Speedup":1}],"runs":6,"type":"I","error":0,"single_s":1}}]}`: "its peak",
		`{"other":1}`: "unknown field",
		`[`:           "unexpected end",
	} {
		var b runs.Book
		if err := json.Unmarshal([]byte(text), &b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for want, x := range map[string]runs.Run{
		"containers is NaN": {Containers: math.NaN(), Tasks: 1, Busy: 1}, "tasks is -1": {Containers: 1, Tasks: -1, Busy: 1}, "busy_s is +Inf": {Containers: 1, Tasks: 1, Busy: math.Inf(1)},
	} {
		if err := b.Note("a", x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := b.Note(strings.Repeat("n", 300), runs.Run{Containers: 1, Tasks: 1, Busy: 1}); err == nil {
		t.Error("a name of 300 bytes is taken")
	}
}

// Applications that have a name of their own for each run do not push out what is known of others.
func TestNamesWithACurveStay(t *testing.T) {
	t.Parallel()
	var b runs.Book
	note(t, &b, "known", drawn(rand.New(rand.NewPCG(3, 1)), 16, peaked, 28, 0.03)...)
	for i := range 1500 {
		note(t, &b, fmt.Sprintf("query-%d", i), runs.Run{Containers: 2, Tasks: 1, Busy: 1})
	}
	if all, curves := b.Names(); all != 1000 || curves != 1 || b.Advise("known", false) == nil {
		t.Errorf("%d names, %d curves", all, curves)
	}
}
