// Claims: a gap is a gap, in lines and in areas; no name of a mark runs into another; names
// of any letters, and pictures of nothing, are well-formed.
package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/plot/plotter"
)

func TestGapsAreGaps(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, c := range []struct {
		y    []float64
		want []int // points of each part
	}{
		{[]float64{0, 1, nan, 3, 4}, []int{2, 2}},
		{[]float64{nan, 1, nan, math.Inf(1), 4}, []int{2, 2}}, // a lone value is a short line
		{[]float64{nan, nan}, nil},
		{nil, nil},
	} {
		var points []plotter.XY
		for i, y := range c.y {
			points = append(points, plotter.XY{X: float64(i), Y: y})
		}
		var got []int
		for _, p := range parts(points) {
			got = append(got, len(p))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: parts of %v, want %v", c.y, got, c.want)
		}
		p := New("x", "time (s)", "power (W)")
		if err := errors.Join(p.Line(Series{Name: "<a&b>", Points: points, Colour: Blue, Steps: true, Dashes: []float64{2, 4}}), p.Area("area", points, points, Sky)); err != nil {
			t.Errorf("%v: %v", c.y, err)
		}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		var b bytes.Buffer
		testkit.Check(t, SaveStrips([]*Plot{p}, &b))
		wellFormed(t, b.Bytes(), "<a&b>", "area", "time (s)", "power (W)")
	}
}

func TestNiceSteps(t *testing.T) {
	t.Parallel()
	for span, want := range map[float64]float64{1000: 200, 60: 10, 1: 0.2, 7: 2} {
		if got := niceStep(span, 6); math.Abs(got-want) > 1e-9 {
			t.Errorf("step of %v is %v, want %v", span, got, want)
		}
	}
	if got := ticks(5).Ticks(0, 0.3); len(got) != 4 || got[3].Label != "0.3" {
		t.Errorf("ticks %v", got)
	}
	if got := ticks(5).Ticks(1, 1); got != nil {
		t.Errorf("ticks of nothing: %v", got)
	}
}

// wellFormed requires a picture that contains all of want.
func wellFormed(t *testing.T, svg []byte, want ...string) {
	t.Helper()
	var text strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if x, ok := token.(xml.CharData); ok {
			text.Write(x)
		}
	}
	for _, w := range want {
		if !strings.Contains(text.String(), w) {
			t.Errorf("the picture does not say %q", w)
		}
	}
	if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("no number in\n%s", svg)
	}
}

// No name stands on another one, however close the marks are.
func TestNamesOfMarksKeepApart(t *testing.T) {
	t.Parallel()
	var all []Mark
	for i, at := range []float64{1, 1.1, 1.2, 20, 21, 60} {
		all = append(all, Mark{at, []string{"budget cut", "leader killed", "powerd killed", "a sprint", "the sprint ends", "over"}[i]})
	}
	rows := rowsOf(all, 60)
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			if rows[i] <= rows[j] && nameEnd(all[i], 60) > all[j].At {
				t.Errorf("name %d (row %d) runs into mark %d (row %d)", i, rows[i], j, rows[j])
			}
		}
	}
	if slices.Max(rows) > 3 {
		t.Errorf("rows %v", rows)
	}
	p := New("x", "time (s)", "power (W)")
	p.Marks(all, 60, Brown)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 60, 0, 1
	var b bytes.Buffer
	testkit.Check(t, Save(p, &b))
	wellFormed(t, b.Bytes(), "leader killed", "over")
}
