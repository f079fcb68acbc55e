package scheduler

// Operating points that are found keep the bounds by what was measured; where none does, the last ones stay and the
// binding bound is named.

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/deflation"
	"headroom/jobs/quality"
)

var noon = time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)

// losing is a profile whose error is a quarter of the drop ratio.
func losing(string) (quality.Profile, error) {
	p, _, err := quality.New(quality.Profile{Name: "words", Engine: "local", Points: []quality.Point{
		{Fraction: 0.1, Accuracy: 0.775, Low: 0.775, High: 0.775, Runs: 1}, {Fraction: 0.5, Accuracy: 0.875, Low: 0.875, High: 0.875, Runs: 1}, {Fraction: 1, Accuracy: 1, Low: 1, High: 1, Runs: 1},
	}})
	return p, err
}

// steady is a class with a job every so many seconds, each of which takes so long: a fifth
// before its 50 map tasks, half for their three waves on 20 slots, the rest after them.
func steady(now time.Time, every, takes float64) (h history) {
	for i := range 60 {
		h.arrived(now.Add(-time.Duration((60 - float64(i)) * every * float64(time.Second))))
		h.ended(waved(takes))
	}
	return h
}

func waved(takes float64) sample {
	return sample{
		seconds: takes, told: true, maps: 0.2 * takes, over: 0.7 * takes, reduce: 0.9 * takes,
		run: deflation.Finished{Tasks: 50, Kept: 50, Slots: 20, Reduces: 1},
	}
}

func autoConfig(latency string) *Config {
	return &Config{Discipline: "dias", Width: 1, Sprint: Sprint{SpeedUp: 2.5}, Classes: []Class{
		{Name: "high", Latency: Latency{Mean: latency}},
		{Name: "low", Theta: auto, MaxError: "20%", Profile: "words"},
	}}
}

// A bound on the high class makes low jobs drop, and no more than their error permits; without need nothing is dropped.
func TestPointsAreFound(t *testing.T) {
	t.Parallel()
	histories := []history{steady(noon, 200, 20), steady(noon, 150, 100)}
	last := []buffers.Class{{Name: "high"}, {Name: "low", Theta: 0.3}}
	easy := autoConfig("1h").look(noon, last, histories, losing)
	if easy.points[1].Theta != 0 || !strings.HasPrefix(easy.why[1], "found: error 0 %") {
		t.Errorf("with an easy bound: %+v, %q", easy.points, easy.why)
	}
	tight := autoConfig("50s").look(noon, last, histories, losing)
	if theta := tight.points[1].Theta; (theta != 0.2 && theta != 0.6) || !strings.Contains(tight.why[1], "would miss mean of class high") {
		t.Errorf("with a tight bound: %+v, %q", tight.points, tight.why)
	}
	if tight.points[0] != last[0] || tight.why[0] != PointGiven {
		t.Errorf("high is not to be found: %+v, %q", tight.points[0], tight.why[0])
	}
}

// Where nothing keeps the bounds, or too little is known, the last point stays, and the words say why.
func TestPointsStay(t *testing.T) {
	t.Parallel()
	last := []buffers.Class{{Name: "high"}, {Name: "low", Theta: 0.3}}
	busy := []history{steady(noon, 200, 20), steady(noon, 150, 100)}
	few := []history{steady(noon, 200, 20), steady(noon, 150, 100)}
	few[1].samples = few[1].samples[:3]
	blind := []history{steady(noon, 200, 20), steady(noon, 150, 100)}
	for i := range blind[1].samples {
		blind[1].samples[i] = sample{seconds: 100}
	}
	for name, c := range map[string]struct {
		histories []history
		latency   string
		known     func(string) (quality.Profile, error)
		want      string
	}{
		"infeasible": {busy, "21s", losing, "the nearest misses mean of class high ("},
		"overloaded": {[]history{steady(noon, 10, 20), steady(noon, 150, 100)}, "1h", losing, "overload: load 2."},
		"too few":    {few, "1h", losing, "3 of 5 required jobs of class low have ended"},
		"no course":  {blind, "1h", losing, "0 of 5 required jobs of class low reported the duration of their map tasks"},
		"no profile": {busy, "1h", func(string) (quality.Profile, error) { return quality.Profile{}, errors.New("gone") }, "profile words of class low: gone"},
		"no jobs":    {make([]history, 2), "1h", losing, "no job of this class yet"},
	} {
		got := autoConfig(c.latency).look(noon, last, c.histories, c.known)
		if got.points[1] != last[1] || !strings.Contains(got.why[1], c.want) {
			t.Errorf("%s: %+v, %q, want %q", name, got.points[1], got.why[1], c.want)
		}
	}
}

// A sprint timer is found for a bound that dropping is not allowed to meet; measured times are those without the sprint.
func TestTimerIsFound(t *testing.T) {
	t.Parallel()
	c := autoConfig("60s")
	c.Classes[0].SprintAfter, c.Classes[1] = auto, Class{Name: "low"}
	histories := []history{steady(noon, 200, 50), steady(noon, 400, 50)}
	got := c.look(noon, []buffers.Class{{Name: "high"}, {Name: "low"}}, histories, losing)
	if !got.points[0].Sprint || got.points[0].SprintAfter > 50*time.Second || !strings.HasPrefix(got.why[0], "found:") {
		t.Errorf("%+v, %q", got.points[0], got.why[0])
	}
}

// What runs tell is their time without sprints, in all of their parts; how fast sprints were is learned from runs with
// and without a timer.
func TestSprintsAreTakenOut(t *testing.T) {
	t.Parallel()
	s := waved(40) // maps from 8 to 28 s
	s.fast = []span{{4, 6}, {20, 30}}
	f := s.finished(2.5)
	for name, x := range map[string][2]float64{"setup": {f.Setup, 8 + 1.5*2}, "maps": {f.Maps, 20 + 1.5*8}, "shuffle": {f.Shuffle, 8 + 1.5*2}, "reduce": {f.Reduce, 4}} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Errorf("%s takes %v s, want %v", name, x[0], x[1])
		}
	}
	var h history
	for range 6 {
		h.ended(sample{seconds: 60})
	}
	if up := h.speedUp(3); up != 3 {
		t.Errorf("nothing was seen of sprints, and they are %v times as fast; told were 3", up)
	}
	for range 6 {
		h.ended(sample{seconds: 40, timed: true, fast: []span{{20, 40}}}) // 20 s, and 20 s for the other 40
	}
	if up := h.speedUp(3); math.Abs(up-2) > 1e-9 {
		t.Errorf("sprints are %v times as fast, want 2", up)
	}
	if mean, cv := h.time(2); math.Abs(mean-60) > 1e-9 || cv > 1e-6 {
		t.Errorf("mean %v, cv %v, want 60 s without sprints", mean, cv)
	}
}

// What the scheduler asks of the deflator is the wave model of the same runs, to the last bit; so what is chosen goes by
// whole waves: of 50 tasks on 20 slots, a fifth or three fifths.
func TestDropRatiosGoByWaves(t *testing.T) {
	t.Parallel()
	c := autoConfig("1h")
	h := steady(noon, 150, 100)
	class := testkit.Need(c.modelled(c.Classes[1], &h, losing))(t)
	model, known := deflation.Learn(h.finished(1))
	profile := testkit.Need(losing("words"))(t)
	want := model.Jobs(deflation.DropWithin(&profile, 0.2))
	if !known || !slices.Equal(class.Jobs.Ratios, want.Ratios) || !slices.Equal(want.Ratios, []float64{0, 0.2, 0.6}) {
		t.Fatalf("ratios %v, the model's %v, want 0, 0.2, 0.6", class.Jobs.Ratios, want.Ratios)
	}
	for i, takes := range []float64{100, 100 - 50./3, 100 - 2*50./3} {
		got, theirs := testkit.Need(class.Jobs.Time(want.Ratios[i]))(t), testkit.Need(want.Time(want.Ratios[i]))(t)
		if got.Mean() != theirs.Mean() || math.Abs(got.Mean()-takes) > 1e-9 {
			t.Errorf("at %v a job takes %v s, by the model %v, want %v", want.Ratios[i], got.Mean(), theirs.Mean(), takes)
		}
	}
	thetas := map[float64]bool{}
	for _, seconds := range []int{40, 50, 60, 70} { // ever looser bounds of the high class
		got := autoConfig(strconv.Itoa(seconds)+"s").look(noon, []buffers.Class{{Name: "high"}, {Name: "low"}}, []history{steady(noon, 200, 20), steady(noon, 150, 100)}, losing)
		thetas[got.points[1].Theta] = true
	}
	if len(thetas) != 3 || !thetas[0] || !thetas[0.2] || !thetas[0.6] {
		t.Errorf("drop ratios %v were chosen, want 0, 0.2, 0.6", thetas)
	}
}

// Points that were found outlive the scheduler; those of the file count more.
func TestPointsAreKept(t *testing.T) {
	t.Parallel()
	cfg := *autoConfig("60s")
	cfg.Dir = t.TempDir()
	text := `{"drained":true,"killed_ns":5,"total_ns":9,"points":[{"Name":"high","Theta":0.7},{"Name":"low","Theta":0.4}]}`
	testkit.WriteFile(t, filepath.Join(cfg.Dir, "dispatch.json"), text)
	b := testkit.Need(buffers.New(cfg.settings()))(t)
	testkit.Check(t, stand(b, cfg))
	if b.Classes[0].Theta != 0 || b.Classes[1].Theta != 0.4 || !b.Drained() || b.Waste().Total != 9 {
		t.Errorf("%+v, drained %v, %+v", b.Classes, b.Drained(), b.Waste())
	}
}
