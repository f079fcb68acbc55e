// Claims: a job whose scaling curve is known is given no container that would slow it down, and none that makes it no
// faster; others get what it would waste; what nobody waits for goes to whoever it still makes faster. A
// curve that follows the containers changes nothing, and curves of others take nothing away from a job without one.
package arbiter_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
)

func curve(t rapid.TB, points ...containers.CurvePoint) *containers.Curve {
	t.Helper()
	return testkit.Need(containers.NewCurve(points))(t)
}

// steep, flat and stepped have their peaks at 10, 30 and 20 containers.
func steep(t rapid.TB) *containers.Curve {
	t.Helper()
	return curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 10, Speedup: 9}, containers.CurvePoint{Containers: 40, Speedup: 5})
}

func flat(t rapid.TB) *containers.Curve {
	t.Helper()
	return curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 10, Speedup: 8}, containers.CurvePoint{Containers: 30, Speedup: 8.5}, containers.CurvePoint{Containers: 31, Speedup: 8})
}

func stepped(t rapid.TB) *containers.Curve {
	t.Helper()
	return curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 8, Speedup: 8}, containers.CurvePoint{Containers: 9, Speedup: 6}, containers.CurvePoint{Containers: 20, Speedup: 14},
		containers.CurvePoint{Containers: 21, Speedup: 13})
}

// along is a contender with a curve.
func along(c arbiter.Contender, x *containers.Curve) arbiter.Contender {
	c.Curve, c.CurveWords = x, "learned from 6 runs"
	return c
}

func TestCurves(t *testing.T) {
	t.Parallel()
	large, small := fresh(busy("a"), 400, 90), fresh(busy("b"), 40, 10)
	tiny := fresh(busy("b"), 15, 10)
	for name, x := range map[string]struct {
		jobs []arbiter.Contender
		want string
	}{
		"no more than the peak":                       {[]arbiter.Contender{along(large, steep(t)), small}, "a:10 b:30"},
		"nor for one that is alone":                   {[]arbiter.Contender{along(large, steep(t))}, "a:10"},
		"nor for a higher class":                      {[]arbiter.Contender{along(fresh(urgent("a"), 400, 90), steep(t)), small}, "a:10 b:30"},
		"the job behind needs them more":              {[]arbiter.Contender{along(large, flat(t)), small}, "a:10 b:30"},
		"a lower class behind it does not":            {[]arbiter.Contender{along(fresh(urgent("a"), 400, 90), flat(t)), small}, "a:30 b:10"},
		"what is left over goes to it":                {[]arbiter.Contender{along(large, flat(t)), tiny}, "a:25 b:15"},
		"and no more than its peak":                   {[]arbiter.Contender{along(large, flat(t))}, "a:30"},
		"before the step, where too few are left":     {[]arbiter.Contender{fresh(busy("a"), 30, 90), along(small, stepped(t)), fresh(busy("c"), 40, 5)}, "a:30 b:8 c:2"},
		"beyond the step, where it leaves enough":     {[]arbiter.Contender{fresh(busy("a"), 15, 90), along(small, stepped(t)), fresh(busy("c"), 40, 5)}, "a:15 b:20 c:5"},
		"all that was promised, though others gained": {[]arbiter.Contender{along(pledged(large, 20), flat(t)), small}, "a:30 b:10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			if got := shares(m.Step(0, jointly(x.jobs...))); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
}

// The bound is in the words of the move, and in the end that is foreseen.
func TestCurvesInWords(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	out := m.Step(0, jointly(changed(along(fresh(busy("a"), 400, 90), steep(t)), func(c *arbiter.Contender) { c.MaySprint = false })))
	if got := out.Moves[0].Reason; !strings.Contains(got, "can use 10; it slows down above 10, learned from 6 runs") {
		t.Errorf("%s", got)
	}
	// 400 tasks of 10 s on one container: on ten, nine times as fast.
	if got := out.Foreseen["a"]; got.Containers != 10 || (got.Left-span(400*10/9.0+10/0.9/2)).Abs() > time.Second {
		t.Errorf("%+v", got)
	}
}

func span(s float64) time.Duration { return time.Duration(s * float64(second)) }

// drawCurve is one of some shapes; nil at times.
func drawCurve(t *rapid.T) *containers.Curve {
	return rapid.SampledFrom([]*containers.Curve{nil, steep(t), flat(t), stepped(t)}).Draw(t, "curve")
}

func TestCurveLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		look := jointly(drawJobs(t)...)
		straight := jointly(slices.Clone(look.Jobs)...)
		line := curve(t, containers.CurvePoint{Containers: 1, Speedup: 1}, containers.CurvePoint{Containers: 2, Speedup: 2})
		for i := range look.Jobs {
			straight.Jobs[i].Curve = line
		}
		var a, b arbiter.Movers
		if x, y := a.Step(0, look), b.Step(0, straight); !reflect.DeepEqual(x.Divisions, y.Divisions) {
			t.Fatalf("a curve that follows the containers changes\n%+v\nto\n%+v", x, y)
		}
		look = drawLook(t)
		for i := range look.Jobs {
			look.Jobs[i].Curve = drawCurve(t)
		}
		var m arbiter.Movers
		out := m.Step(0, look)
		lawful(t, look, out)
		for engine, d := range out.Divisions {
			over := max(0, look.Pools[engine].Overhead)
			for _, s := range d.Shares {
				i := slices.IndexFunc(look.Jobs, func(c arbiter.Contender) bool { return c.ID == s.ID })
				if x := look.Jobs[i].Curve; x != nil && s.Containers > over && x.Fastest(s.Containers-over) != s.Containers-over {
					t.Fatalf("%s is given %d containers for tasks", s.ID, s.Containers-over)
				}
			}
		}
	})
}

// Curves of others take nothing away that a job without one was promised and got.
func TestPromisesBesideCurves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		at := rapid.IntRange(0, len(jobs)-1).Draw(t, "job")
		jobs[at].Promised = rapid.IntRange(1, 60).Draw(t, "promised")
		step := func() int {
			var m arbiter.Movers
			for _, s := range m.Step(0, jointly(jobs...)).Divisions[""].Shares {
				if s.ID == jobs[at].ID {
					return s.Containers
				}
			}
			return 0
		}
		curves := make([]*containers.Curve, len(jobs))
		for i := range jobs {
			if i != at {
				curves[i] = drawCurve(t)
			}
			jobs[i].Deadline = 0 // a job may pass others once it is known to be late
		}
		without := step()
		for i := range jobs {
			jobs[i].Curve = curves[i]
		}
		if with := step(); with < min(without, jobs[at].Promised) {
			t.Fatalf("%d containers of %d that are promised, %d without the curves of others", with, jobs[at].Promised, without)
		}
	})
}
