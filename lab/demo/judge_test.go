package demo

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/units"
)

const w = units.Watt

// rows are samples every 250 ms with the same figure for all three sums; a
// budget of 0 repeats the one before, a value of -1 is not known.
func rows(pairs ...[2]float64) []sample {
	var out []sample
	budget := 0.0
	for i, p := range pairs {
		if p[0] != 0 {
			budget = p[0]
		}
		s := sample{at: time.Duration(i) * sampleEvery, budget: units.FromWatts(budget)}
		if p[1] >= 0 {
			v := units.FromWatts(p[1])
			s.reserved, s.held, s.measured = &v, &v, &v
		}
		out = append(out, s)
	}
	return out
}

// repeat is n rows of the same value under the budget before.
func repeat(n int, value float64) [][2]float64 {
	out := make([][2]float64, n)
	for i := range out {
		out[i] = [2]float64{0, value}
	}
	return out
}

// What is above the budget counts until the next row; what fits to the
// milliwatt, or for measured to 2 %, does not.
func TestJudgeCountsWhatIsAbove(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		value          float64
		exact, measure time.Duration
	}{
		{"equal", 100, 0, 0},
		{"within a milliwatt", 100.001, 0, 0},
		{"above by two milliwatts", 100.002, 500 * time.Millisecond, 0},
		{"within 2 %", 102, 500 * time.Millisecond, 0},
		{"above 2 %", 102.1, 500 * time.Millisecond, 500 * time.Millisecond},
		{"unknown", -1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := judge(rows([2]float64{100, 90}, [2]float64{0, c.value}, [2]float64{0, c.value}, [2]float64{0, 90}), nil)
			if got.reserved != c.exact || got.held != c.exact || got.measured != c.measure {
				t.Errorf("%+v, want %v and %v", got, c.exact, c.measure)
			}
		})
	}
}

// After a cut a sum may be above until it first fits, for 2 s (measured: 3 s) at
// the most; what comes later, and what rises again after it fitted, counts.
func TestJudgeForgivesSettlingOnly(t *testing.T) {
	t.Parallel()
	const cut = 100 * time.Millisecond
	before := [][2]float64{{100, 95}, {60, 95}}
	for _, c := range []struct {
		name           string
		after          [][2]float64
		exact, measure time.Duration
	}{
		{"fits within the time", append(repeat(6, 95), repeat(8, 60)...), 0, 0},
		// 2.1 s end inside the row at 2.0 s; 3.1 s inside the one at 3.0 s.
		{"too late", append(repeat(11, 95), repeat(4, 60)...), 1150 * time.Millisecond, 150 * time.Millisecond},
		// At once, measured is still a mean over time before the cut.
		{"above again at once", append(append(repeat(1, 60), repeat(2, 95)...), repeat(2, 60)...), 500 * time.Millisecond, 0},
		{"above again later", append(append(repeat(6, 60), repeat(2, 95)...), repeat(2, 60)...), 500 * time.Millisecond, 500 * time.Millisecond},
		{"a gap is no fit", append(append(repeat(2, -1), repeat(2, 95)...), repeat(2, 60)...), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := judge(rows(append(append([][2]float64{}, before...), c.after...)...), []time.Duration{cut})
			if got.reserved != c.exact || got.measured != c.measure {
				t.Errorf("%+v, want %v and %v", got, c.exact, c.measure)
			}
		})
	}
}

// A run in which nothing was above is never judged broken, whenever cuts were;
// and scaling every watt changes no verdict of the exact sums.
func TestJudgeLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var samples, scaled, under []sample
		for i := range rapid.IntRange(0, 40).Draw(t, "rows") {
			budget := units.Power(rapid.Int64Range(100, 1000).Draw(t, "budget")) * w
			v := units.Power(rapid.Int64Range(100, 1000).Draw(t, "value")) * w
			at := time.Duration(i) * sampleEvery
			samples = append(samples, sample{at: at, budget: budget, reserved: &v, held: &v, measured: &v})
			v2, less := 2*v, min(v, budget)
			scaled = append(scaled, sample{at: at, budget: 2 * budget, reserved: &v2, held: &v2, measured: &v2})
			under = append(under, sample{at: at, budget: budget, reserved: &less, held: &less, measured: &less})
		}
		var cuts []time.Duration
		if rapid.Bool().Draw(t, "cut") {
			cuts = append(cuts, time.Duration(rapid.IntRange(0, 10_000).Draw(t, "at"))*time.Millisecond)
		}
		if got := judge(under, cuts); got != (verdict{}) {
			t.Fatalf("nothing was above, judged %+v", got)
		}
		one, two := judge(samples, cuts), judge(scaled, cuts)
		if one.reserved != two.reserved || one.held != two.held {
			t.Fatalf("%+v, scaled %+v", one, two)
		}
		if whole := time.Duration(len(samples)) * sampleEvery; one.held > whole {
			t.Fatalf("above for %v of %v", one.held, whole)
		}
	})
}

// At the budget the breaker warms and holds; far above it trips, by heat or at once; a
// gap counts as the whole budget; nothing measured is nothing known.
func TestBreakerJudgesWhatWasMeasured(t *testing.T) {
	t.Parallel()
	whole := breakerOf(rows(append([][2]float64{{100, 100}}, repeat(240, 100)...)...))
	if whole == nil || whole.Tripped || whole.Hottest < 0.1 || whole.Hottest > 0.3 {
		t.Errorf("a minute at the budget: %v", whole)
	}
	gap := breakerOf(rows(append(append([][2]float64{{100, 100}}, repeat(239, -1)...), [2]float64{0, 100})...))
	if gap == nil || *gap != *whole {
		t.Errorf("with a gap %v, without %v", gap, whole)
	}
	if hot := breakerOf(rows(append([][2]float64{{100, 300}}, repeat(240, 300)...)...)); hot == nil || !hot.Tripped {
		t.Errorf("a minute at three times the budget: %v", hot)
	}
	if got := breakerOf(rows(append([][2]float64{{100, -1}}, repeat(9, -1)...)...)); got != nil {
		t.Errorf("nothing measured: %v", got)
	}
}
