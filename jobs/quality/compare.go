package quality

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Result is what a job has found: numbers by key.
type Result map[string]float64

const (
	lineMax = 1 << 20 // bytes
	keysMax = 20_000_000
)

// ReadResult reads lines of a key, a tab and a number. The numbers of a key that comes
// twice are added up, as a reduce task would. The error wraps ErrResult and names the line.
func ReadResult(r io.Reader) (Result, error) {
	out := Result{}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), lineMax)
	line := 0
	for in.Scan() {
		line++
		text := in.Text()
		if text == "" {
			continue
		}
		tab := strings.LastIndexByte(text, '\t')
		if tab < 0 {
			return nil, fmt.Errorf("%w: line %d: %q has no tab; a key, a tab and a number are expected", errResult, line, short(text))
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(text[tab+1:]), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%w: line %d: %q is not a number", errResult, line, short(text[tab+1:]))
		}
		out[text[:tab]] += v
		if len(out) > keysMax {
			return nil, fmt.Errorf("%w: more than %d keys", errResult, keysMax)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%w: line %d: %w", errResult, line+1, err)
	}
	return out, nil
}

// short keeps a long line out of an error.
func short(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "?") + "..."
}

// Scaled returns r with all numbers divided by the part of the tasks that ran: what sums
// would have been over all of them.
func (r Result) Scaled(fraction float64) Result {
	out := make(Result, len(r))
	for k, v := range r {
		out[k] = v / fraction
	}
	return out
}

// Comparison states how a partial result is held against the exact one.
type Comparison string

// Comparisons by name.
const (
	// Relative is the magnitude of what is right in the partial result, against that of
	// the exact one: 1 - sum |exact - partial| / sum |exact|. The default.
	Relative Comparison = "relative"
	// TopK is the part of the greatest keys of the exact result that are among as many
	// greatest keys of the partial one. Keys that tie with the last count as right.
	TopK Comparison = "topk"
	// Value is the mean over the exact result's keys of 1 - |exact - partial| / |exact|:
	// for a few numbers that count alike, such as a mean or an estimate of pi.
	Value Comparison = "value"
)

// Comparisons returns all comparisons, the default first.
func Comparisons() []Comparison { return []Comparison{Relative, TopK, Value} }

// ParseComparison reads a comparison's name; empty is the default. The error wraps ErrComparison.
func ParseComparison(name string) (Comparison, error) {
	if name == "" {
		return Relative, nil
	}
	if c := Comparison(name); slices.Contains(Comparisons(), c) {
		return c, nil
	}
	return "", fmt.Errorf("%w: %q; want one of %v", errComparison, name, Comparisons())
}

// Accuracy returns how near a partial result is to the exact one, 0 to 1. top is how many
// keys TopK looks at; 0 stands for as many as the exact result has. Nothing is
// exactly nothing.
func (c Comparison) Accuracy(exact, partial Result, top int) float64 {
	switch c {
	case TopK:
		return topK(exact, partial, top)
	case Value:
		return value(exact, partial)
	case Relative:
	}
	return relative(exact, partial)
}

func relative(exact, partial Result) float64 {
	// In the order of the keys: floats do not add up alike in every order.
	var off, all float64
	for _, k := range keys(exact) {
		off += math.Abs(exact[k] - partial[k])
		all += math.Abs(exact[k])
	}
	for _, k := range keys(partial) {
		if _, known := exact[k]; !known {
			off += math.Abs(partial[k])
		}
	}
	if all == 0 {
		return whole(off == 0)
	}
	return unit(1 - off/all)
}

func value(exact, partial Result) float64 {
	if len(exact) == 0 {
		return whole(len(partial) == 0)
	}
	sum := 0.0
	for _, k := range keys(exact) {
		e, p := exact[k], partial[k]
		if e == 0 {
			sum += whole(p == 0)
			continue
		}
		sum += unit(1 - math.Abs(e-p)/math.Abs(e))
	}
	return unit(sum / float64(len(exact)))
}

func topK(exact, partial Result, top int) float64 {
	best := greatest(exact)
	if top <= 0 || top > len(best) {
		top = len(best)
	}
	if top == 0 {
		return whole(len(partial) == 0)
	}
	least, right := exact[best[top-1]], 0
	found := greatest(partial)
	for _, k := range found[:min(top, len(found))] {
		if v, known := exact[k]; known && v >= least {
			right++
		}
	}
	return float64(right) / float64(top)
}

// greatest returns the keys of r, the one with the greatest number first.
func greatest(r Result) []string {
	out := keys(r)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(r[b], r[a]) })
	return out
}

func keys(r Result) []string {
	out := make([]string, 0, len(r))
	for k := range r {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// unit bounds x to 0 to 1; what is no number is worth nothing.
func unit(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, 0), 1)
}

func whole(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
