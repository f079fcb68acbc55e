// Claims: the judge finds the settling and the overshoot that a made-up trajectory
// has; every law of the bench runs, and the same seed gives the same figures; a
// soak keeps its memory; the picture is well-formed. No timing is asserted.
package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"headroom/internal/cli"
)

// trajectory is 12 s of means, each from the moment in it.
func trajectory(of func(at time.Duration) float64) []point {
	var all []point
	for at := time.Duration(0); at < stepWatched; at += judged {
		all = append(all, point{wall: of(at), free: 300})
	}
	return all
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                          string
		of                            func(at time.Duration) float64
		settle, over, longest, steady float64
	}{
		{"in the band at once", func(time.Duration) float64 { return 99 }, 0, 0, 0, -0.01},
		{
			"comes from above, one bump of 5 % for 200 ms at 6 s", func(at time.Duration) float64 {
				switch {
				case at < time.Second:
					return 200
				case at >= 6*time.Second && at < 6200*time.Millisecond:
					return 105
				}
				return 100
			}, 1, 0.05, 0.2, 0.05 * 4 / 160,
		},
		{
			"rings until 3 s", func(at time.Duration) float64 {
				if at < 3*time.Second && at/(500*time.Millisecond)%2 == 1 {
					return 110
				}
				return 100
			}, 3, 0.10, 0.5, 0,
		},
		{"never", func(time.Duration) float64 { return 130 }, math.Inf(1), 0, 0, 0.3},
	} {
		v := judge(trajectory(c.of), 100)
		for what, x := range map[string][2]float64{
			"settle": {v.settle, c.settle}, "over": {v.over, c.over}, "longest": {v.longest, c.longest}, "steady": {v.steady, c.steady},
		} {
			if x[0] != x[1] && !(math.Abs(x[0]-x[1]) < 1e-9) {
				t.Errorf("%s: %s is %v, want %v", c.name, what, x[0], x[1])
			}
		}
	}
	// A load that draws less than the cap is what the node should draw.
	idle := slices.Repeat([]point{{wall: 60, free: 60}}, 100)
	if v := judge(idle, 100); v.settle != 0 || v.over != 0 || v.steady != 0 {
		t.Errorf("idle below the cap: %+v", v)
	}
}

func TestNodeLawsRun(t *testing.T) {
	t.Parallel()
	o := nodeOptions{seed: 3, steps: 10, lawsOnly: true, plot: filepath.Join(t.TempDir(), "laws.svg")}
	first, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range first.Laws {
		names = append(names, l.Law)
		if l.SteadyError.Mean == nil || l.SteadyError.P99 == nil || *l.SteadyError.P99 < 0 {
			t.Errorf("%s: %+v", l.Law, l)
		}
	}
	if want := []string{"headroom", "open-loop", "pstate-step", "integral", "hardware"}; !slices.Equal(names, want) {
		t.Errorf("laws %v, want %v", names, want)
	}
	again, err := o.run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(first)
	b, errB := json.Marshal(again)
	if err := errors.Join(errA, errB); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the same seed: %s, then %s (%v)", a, b, err)
	}
	picture, err := os.Open(o.plot)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = picture.Close() }()
	for d := xml.NewDecoder(picture); err == nil; {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the picture: %v", err)
	}
}

// In virtual hours the law's memory stays what it was, and the mean below the cap.
func TestShortSoak(t *testing.T) { //nolint:paralleltest // it looks at the whole process' heap
	s, err := runSoak(t.Context(), 1, 40*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if s.Steps != 40 || s.HeapStartB == 0 || s.HeapEndB == 0 || math.Abs(s.MeanError) > 0.02 {
		t.Errorf("soak %+v", s)
	}
	b, err := newBed(stage(1, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	law := newTwoSpeed(b)
	b.step(func() { law.turn(b, true) })
	most := 3.0 // what Share answers with, and nothing that stays
	if got := testing.AllocsPerRun(200, func() { b.step(func() { law.turn(b, true) }) }); got > most*float64(judged/plantStep) {
		t.Errorf("%v allocations in a step of %d turns", got, judged/plantStep)
	}
}

func TestNodeCommand(t *testing.T) {
	t.Parallel()
	exit, out, errs := execute(t, "node", "--laws-only", "--steps", "4", "-o", "json")
	if exit != cli.ExitOK {
		t.Fatalf("exit %d, %s", exit, errs)
	}
	var r struct {
		Laws []struct {
			Law    string              `json:"law"`
			Settle map[string]*float64 `json:"settle_s"`
			Over   map[string]*float64 `json:"overshoot"`
			Steady map[string]*float64 `json:"steady_error"`
		} `json:"laws"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Laws) != 5 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, l := range r.Laws {
		for _, key := range []string{"p50", "p99"} {
			if _, ok := l.Settle[key]; !ok {
				t.Errorf("%s has no settle_s.%s", l.Law, key)
			}
		}
		_, most := l.Over["max"]
		_, longest := l.Over["longest_s"]
		_, mean := l.Steady["mean"]
		_, p99 := l.Steady["p99"]
		if !most || !longest || !mean || !p99 {
			t.Errorf("%s lacks figures: %+v", l.Law, l)
		}
	}
	if exit, out, _ := execute(t, "node", "--laws-only", "--steps", "2"); exit != cli.ExitOK || !bytes.Contains([]byte(out), []byte("pstate-step")) {
		t.Errorf("table: exit %d, %s", exit, out)
	}
	if exit, _, _ := execute(t, "node", "--steps", "0"); exit != cli.ExitUsage {
		t.Errorf("--steps 0: exit %d", exit)
	}
}
