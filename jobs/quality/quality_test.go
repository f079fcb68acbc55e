// Claims: a profile is monotone whatever was measured, and says which points it
// pooled; the part of the tasks that it names keeps the accuracy that was asked for;
// files that cannot be true are refused with their place; the comparisons tell what
// their names say and stay within 0 and 1.
package quality

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
)

func words(points ...Point) Profile { return Profile{Name: "words", Engine: "local", Points: points} }

func point(fraction, accuracy, low, high float64, runs int) Point {
	return Point{Fraction: fraction, Accuracy: accuracy, Low: low, High: high, Runs: runs}
}

func TestFallingPointsArePooled(t *testing.T) {
	t.Parallel()
	p, warnings, err := New(words(
		point(0.75, 0.8, 0.8, 0.8, 1), point(0.25, 0.6, 0.5, 0.7, 5), // not in order
		point(0.5, 0.9, 0.85, 0.95, 3), point(0.9, 0.97, 0.96, 0.98, 5)))
	if err != nil {
		t.Fatal(err)
	}
	// (3*0.9 + 1*0.8) / 4, for the middle two.
	for i, want := range []float64{0.6, 0.875, 0.875, 0.97} {
		if math.Abs(p.Points[i].Accuracy-want) > 1e-12 {
			t.Errorf("point %d: accuracy %v, want %v", i, p.Points[i].Accuracy, want)
		}
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "0.5, 0.75") || !strings.Contains(warnings[0], "0.875") {
		t.Errorf("warnings %q must name 0.5 and 0.75", warnings)
	}
	if _, warnings, _ := New(words(point(0.5, 0.6, 0.6, 0.6, 1), point(0.75, 0.8, 0.8, 0.8, 1))); len(warnings) != 0 {
		t.Errorf("rising points, but %q", warnings)
	}
}

func TestBetweenPoints(t *testing.T) {
	t.Parallel()
	p, _, err := New(words(point(0.5, 0.8, 0.7, 0.9, 5), point(0.75, 0.9, 0.9, 0.9, 5)))
	if err != nil {
		t.Fatal(err)
	}
	for fraction, want := range map[float64][3]float64{
		-1: {}, 0: {}, 0.25: {0.4, 0.35, 0.45}, 0.5: {0.8, 0.7, 0.9}, 0.625: {0.85, 0.8, 0.9}, 0.875: {0.95, 0.95, 0.95}, 1: {1, 1, 1}, 2: {1, 1, 1},
	} {
		mean, low, high := p.Accuracy(fraction)
		for i, got := range []float64{mean, low, high} {
			if math.Abs(got-want[i]) > 1e-12 {
				t.Errorf("accuracy of %v: %v, %v, %v, want %v", fraction, mean, low, high, want)
			}
		}
	}
	// By the worst run: 0.8 needs more than the half whose mean it is.
	for accuracy, want := range map[float64]float64{0: 0, 0.35: 0.25, 0.7: 0.5, 0.8: 0.625, 0.9: 0.75, 0.95: 0.875, 1: 1} {
		if got, ok := p.Fraction(accuracy); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("accuracy %v needs %v, want %v", accuracy, got, want)
		}
	}
	for _, accuracy := range []float64{1.01, math.NaN(), math.Inf(1)} {
		if _, ok := p.Fraction(accuracy); ok {
			t.Errorf("a part of the tasks keeps accuracy %v", accuracy)
		}
	}
}

func profiles(t *rapid.T) Profile {
	p := Profile{Name: "x", Engine: "local"}
	fractions := rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 1, 12, rapid.ID[int]).Draw(t, "fractions")
	for _, f := range fractions {
		runs := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 6).Draw(t, "runs")
		p.Points = append(p.Points, PointOf(float64(f)/100, runs))
	}
	return p
}

func TestProfileLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, _, err := New(profiles(t))
		if err != nil {
			t.Fatal(err)
		}
		a, b := rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b")
		a, b = min(a, b), max(a, b)
		mean, low, high := p.Accuracy(a)
		mean2, low2, high2 := p.Accuracy(b)
		const hair = 1e-12
		if mean > mean2+hair || low > low2+hair || high > high2+hair || low > mean+hair || mean > high+hair {
			t.Errorf("at %v: %v %v %v, at %v: %v %v %v", a, low, mean, high, b, low2, mean2, high2)
		}
		f, ok := p.Fraction(b)
		if _, kept, _ := p.Accuracy(f); !ok || f < 1 && kept < b-1e-9 {
			t.Errorf("accuracy %v is not kept by %v of the tasks: %v", b, f, kept)
		}
		if less, _ := p.Fraction(a); less > f+hair {
			t.Errorf("accuracy %v needs %v, more than %v for %v", a, less, f, b)
		}
		again, warnings, err := New(p)
		if err != nil || len(warnings) != 0 || !slices.Equal(again.Points, p.Points) {
			t.Errorf("a valid profile is changed: %v, %v, %v", again, warnings, err)
		}
		data := testkit.Need(p.Encode())(t)
		if read, _, err := Parse(data); err != nil || !slices.Equal(read.Points, p.Points) {
			t.Errorf("read back: %+v, %v", read, err)
		}
	})
}

func TestBadProfilesAreRefused(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		`{"name":"x","engine":"local","points":[]}`:                                                          "0 points",
		`{"engine":"local","points":[{"fraction":1,"accuracy":1,"low":1,"high":1,"runs":1}]}`:                "name is missing",
		`{"name":"x","points":[{"fraction":1,"accuracy":1,"low":1,"high":1,"runs":1}]}`:                      "engine is missing",
		`{"name":"x","engine":"l","points":[{"fraction":0,"accuracy":1,"low":1,"high":1,"runs":1}]}`:         "fraction 0",
		`{"name":"x","engine":"l","points":[{"fraction":0.5,"accuracy":0.5,"low":0.6,"high":1,"runs":1}]}`:   "low 0.6",
		`{"name":"x","engine":"l","points":[{"fraction":0.5,"accuracy":0.5,"low":0.5,"high":0.5,"runs":0}]}`: "0 runs",
		"{\"name\":\"x\",\n \"engin\":\"l\"}":                                                                "2:",
		"{\n \"name\": \"x\",\n":                                                                             "3:1: unexpected EOF",
		"{\"name\": \"x\",\n \"points\": 3}":                                                                 "2:12:",
		"{\"name\": \"x\",\n \"points\": [}}":                                                                "2:13:",
		`{"name":"x","engine":"l","comparison":"vibes","points":[]}`:                                         "0 points",
		`{"name":"x"} {}`: "more than one",
		`{"name":"x","engine":"l","points":[{"fraction":1,"runs":1},{"fraction":1,"runs":1}]}`: "two points for fraction 1",
		`{"name":"x","engine":"l","comparison":"vibes","points":[{"fraction":1,"runs":1}]}`:    `"vibes"; want one of`,
	} {
		if _, _, err := Parse([]byte(file)); !errors.Is(err, errProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name":"x","engine":"local","points":[{"fraction":0.5,"accuracy":0.5,"low":0.4,"high":0.6,"runs":3},{"fraction":1,"accuracy":0.3,"low":0.2,"high":1,"runs":1}]}`))
	f.Add([]byte(`{"points":` + strings.Repeat("[", 60_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Profile
		var err error
		testkit.Cheap(t, len(data), func() { p, _, err = Parse(data) })
		if err != nil {
			return
		}
		if f, ok := p.Fraction(0.9); !ok || !(f >= 0 && f <= 1) {
			t.Fatalf("%s: needs %v", data, f)
		}
	})
}

func TestComparisons(t *testing.T) {
	t.Parallel()
	exact := Result{"a": 10, "b": 6, "c": 4}
	for _, c := range []struct {
		name    string
		by      Comparison
		partial Result
		top     int
		want    float64
	}{
		{"half of each", Relative, Result{"a": 5, "b": 3, "c": 2}, 0, 0.5},
		{"scaled up", Relative, Result{"a": 5, "b": 3, "c": 2}.Scaled(0.5), 0, 1},
		{"a key missing", Relative, Result{"a": 10, "b": 6}, 0, 0.8},
		{"a key too many", Relative, Result{"a": 10, "b": 6, "c": 4, "d": 2}, 0, 0.9},
		{"nothing", Relative, Result{}, 0, 0},
		{"all wrong", Relative, Result{"a": 1000}, 0, 0},
		{"all of it", TopK, Result{"a": 5, "b": 1, "c": 4}, 0, 1},
		{"one of two", TopK, Result{"a": 5, "b": 1, "c": 4}, 2, 0.5},
		{"ties are right", TopK, Result{"a": 5, "c": 4, "b": 1}, 5, 1},
		{"nothing found", TopK, Result{}, 2, 0},
		{"each counts alike", Value, Result{"a": 5, "b": 6, "c": 4}, 0, (0.5 + 1 + 1) / 3},
		{"missing is nothing", Value, Result{"a": 10}, 0, 1.0 / 3},
	} {
		if got := c.by.Accuracy(exact, c.partial, c.top); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s, %s: %v, want %v", c.by, c.name, got, c.want)
		}
	}
	tied := Result{"a": 3, "b": 2, "c": 2}
	if got := TopK.Accuracy(tied, Result{"a": 3, "c": 2}, 2); got != 1 {
		t.Errorf("either of two keys that tie is right, but accuracy is %v", got)
	}
	for _, c := range Comparisons() {
		if c.Accuracy(Result{}, Result{}, 0) != 1 || c.Accuracy(Result{}, Result{"a": 1}, 0) != 0 {
			t.Errorf("%s: nothing is exactly nothing", c)
		}
		if read, err := ParseComparison(string(c)); read != c || err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	if c, err := ParseComparison(""); c != Relative || err != nil {
		t.Errorf("default %q, %v", c, err)
	}
	if _, err := ParseComparison("vibes"); !errors.Is(err, errComparison) {
		t.Errorf("%v", err)
	}
}

func TestComparisonsStayWithinBounds(t *testing.T) {
	t.Parallel()
	number := rapid.OneOf(rapid.SampledFrom([]float64{0, -1, 1, 1e308, -1e308, 1e-308}), rapid.Float64Range(-1e9, 1e9))
	results := rapid.MapOfN(rapid.StringMatching("[a-d]"), number, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		exact, partial := Result(results.Draw(t, "exact")), Result(results.Draw(t, "partial"))
		for _, c := range Comparisons() {
			if a := c.Accuracy(exact, partial, rapid.IntRange(0, 5).Draw(t, "top")); !(a >= 0 && a <= 1) {
				t.Errorf("%s: accuracy %v", c, a)
			}
		}
	})
}

func TestReadResult(t *testing.T) {
	t.Parallel()
	got, err := ReadResult(strings.NewReader("a b\t3\n\nc\t1e2\na b\t4\r\n"))
	if err != nil || len(got) != 2 || got["a b"] != 7 || got["c"] != 100 {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"a\t1\nno tab": "line 2", "a\tx": `"x" is not a number`, "a\tNaN": "line 1", "a\t1\n" + strings.Repeat("y", 2<<20): "line 2",
	} {
		if _, err := ReadResult(strings.NewReader(text)); !errors.Is(err, errResult) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", short(text), err, want)
		}
	}
}
