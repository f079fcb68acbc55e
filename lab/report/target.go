package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Target is one number of a paper and the value measured here.
type Target struct {
	// ID is the target's, with what it is for behind a slash: "D1/95".
	ID   string `json:"id"`
	What string `json:"what"`
	// Unit of Paper, Got, Low and High; empty for plain ratios.
	Unit string `json:"unit"`
	// Paper is the paper's own number; absent if the paper gives an ordering only.
	Paper *float64 `json:"paper"`
	// Got is the value measured here, Low and High its bounds.
	Got  *float64 `json:"got"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Met is filled in when the report is printed: the paper's number or at least its ordering was
	// reproduced; nil if the experiment was not made.
	Met     *bool   `json:"met"`
	Verdict Verdict `json:"verdict"`
	// Note describes how the target was judged, and if it is short, by how much and why.
	Note string `json:"note"`
}

// Verdict is the result of comparing a target with the paper.
type Verdict string

// The verdicts, the best first. NotRun and Few are none: the experiment was not made, or not often enough.
const (
	// Met means that the value is within the target's tolerance of the paper's number, or, if the
	// paper gives an ordering only, that the ordering holds.
	Met Verdict = "met"
	// Order means that only the ordering or the sign of the paper's number holds.
	Order Verdict = "order"
	// Short means that not even that holds, or that nothing was measured.
	Short  Verdict = "short"
	NotRun Verdict = "not_run"
	Few    Verdict = "too few runs"
)

// Worse reports whether v is a worse verdict than o.
func (v Verdict) Worse(o Verdict) bool {
	order := []Verdict{Met, Order, Short, NotRun, Few}
	return slices.Index(order, v) > slices.Index(order, o)
}

// Judge is a target of a stat: met if the required ordering or sign holds, short if it does not or
// if the stat is not known.
func Judge(id, what, unit string, got Stat, ordered bool, note string) Target {
	t := Target{ID: id, What: what, Unit: unit, Note: note, Verdict: Short}
	if !got.Known {
		t.Note = "not measured"
		return t
	}
	if ordered {
		t.Verdict = Met
	}
	t.Got, t.Low, t.High = &got.Mean, &got.Low, &got.High
	return t
}

// Left is a target whose experiment this command does not make; how names the command that does.
func Left(id, what, unit, how string) Target {
	return Target{ID: id, What: what, Unit: unit, Verdict: NotRun, Note: how}
}

// From adds the paper's own number to a target whose ordering is judged. A value outside the
// tolerance has the verdict order at best, and the note contains by how much it misses.
func From(number float64, tolerance Range, t Target) Target {
	t.Paper = &number
	if t.Got == nil {
		return t
	}
	rule := "tolerance " + tolerance.words()
	if by := -tolerance.Room(*t.Got); by > 0 {
		rule += ", missed by " + strings.TrimSpace(fmt.Sprintf("%.2f %s", by, t.Unit))
		if t.Verdict == Met {
			t.Verdict = Order
		}
	}
	t.Note = strings.TrimPrefix(t.Note+"; "+rule, "; ")
	return t
}

// Range is an interval of numbers, both ends included: the tolerance around a paper's number, or the aim of a claim.
type Range struct{ Low, High float64 }

// Anything is the range of all numbers.
func Anything() Range { return AtLeast(math.Inf(-1)) }

// Around is the range from number - by to number + by.
func Around(number, by float64) Range { return Range{number - by, number + by} }

// AtMost is the range of all numbers up to high.
func AtMost(high float64) Range { return Range{math.Inf(-1), high} }

// AtLeast is the range of all numbers from low.
func AtLeast(low float64) Range { return Range{low, math.Inf(1)} }

// Above is the range of all numbers above low, Below that of all numbers below high.
func Above(low float64) Range { return AtLeast(math.Nextafter(low, math.Inf(1))) }

// Below is the counterpart of Above.
func Below(high float64) Range { return AtMost(math.Nextafter(high, math.Inf(-1))) }

// Has reports whether the range includes the interval from low to high.
func (r Range) Has(low, high float64) bool { return r.Low <= low && high <= r.High }

// Room is the distance from x to the nearer end, negative outside.
func (r Range) Room(x float64) float64 { return min(x-r.Low, r.High-x) }

func (r Range) words() string {
	switch {
	case math.IsInf(r.Low, -1):
		return fmt.Sprintf("up to %.2f", r.High)
	case math.IsInf(r.High, 1):
		return fmt.Sprintf("%.2f or more", r.Low)
	}
	return fmt.Sprintf("%.2f to %.2f", r.Low, r.High)
}

// number is a value with its unit, empty when unknown.
func (t *Target) number(v *float64) string {
	if v == nil {
		return ""
	}
	return strings.TrimSpace(strconv.FormatFloat(*v, 'f', 2, 64) + " " + t.Unit)
}

func (t *Target) bounds() string {
	if t.Low == nil || t.High == nil {
		return ""
	}
	return fmt.Sprintf("%.2f to %.2f", *t.Low, *t.High)
}
