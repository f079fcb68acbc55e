package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"headroom/internal/cli"
)

// Report is everything that one run measured, as -o json prints it.
type Report struct {
	Kind    string  `json:"kind"`
	API     string  `json:"api"`
	Machine Machine `json:"machine"`
	Noise   Noise   `json:"noise"`
	Items   []Item  `json:"items"`
}

// Item is one figure. What is not known is nil.
type Item struct {
	// Name is the benchmark and what of it, e.g. "cut-1000".
	Name string `json:"name"`
	// What is measured, in words.
	What string `json:"what"`
	// Goal in words, e.g. "p99 <= 2 s".
	Goal *string `json:"goal"`
	// Value is the figure that the goal is about, in Unit.
	Value *float64 `json:"value"`
	// Unit of Value, P50, P99 and Peer: "s", "ms", "us", "%", "MB" or "x".
	Unit string `json:"unit"`
	// P50 and P99 are quantiles over the repetitions.
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
	// Peer is the same figure of another way of doing the same, in the same run.
	Peer *float64 `json:"peer"`
	// Ratio is Value over Peer: below 1 is better than the peer.
	Ratio *float64 `json:"ratio"`
	// Met reports whether the goal is met; nil without a goal or a value.
	Met *bool `json:"met"`
	// Note names the peer, the repetitions, or why there is no value.
	Note string `json:"note"`
}

// goal is a bound on an item's value: at least low and at most high.
type goal struct {
	text      string
	low, high float64
}

// atMost is the goal of a value that may not exceed high.
func atMost(high float64, text string) goal { return goal{text: text, low: math.Inf(-1), high: high} }

// item begins an item; without a value it is unknown.
func newItem(name, what, unit string) Item { return Item{Name: name, What: what, Unit: unit} }

// aim sets the goal, and whether the value meets it.
func (i Item) aim(g goal) Item {
	i.Goal = &g.text
	if i.Value != nil {
		met := *i.Value >= g.low && *i.Value <= g.high
		i.Met = &met
	}
	return i
}

// is sets the value.
func (i Item) is(v float64) Item {
	i.Value = finite(v)
	return i
}

// spread sets the quantiles; the value is the 99th percentile.
func (i Item) spread(values []float64) Item {
	if len(values) == 0 {
		return i
	}
	i.P50, i.P99 = finite(quantile(values, 0.50)), finite(quantile(values, 0.99))
	i.Value = i.P99
	return i
}

// against sets the peer's value, and the ratio to it.
func (i Item) against(peer float64) Item {
	i.Peer = finite(peer)
	if i.Value != nil && i.Peer != nil && peer != 0 {
		i.Ratio = finite(*i.Value / peer)
	}
	return i
}

// say sets the note.
func (i Item) say(format string, args ...any) Item {
	i.Note = fmt.Sprintf(format, args...)
	return i
}

// finite is v, or nil for what is no number (JSON has no infinity).
func finite(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }

// quantile is the smallest value that at least the share q of all does not
// exceed; NaN without values.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// seconds are durations as numbers, in s.
func seconds(ds []time.Duration) []float64 {
	out := make([]float64, len(ds))
	for i, d := range ds {
		out[i] = d.Seconds()
	}
	return out
}

// print writes the table, then what machine made it and how noisy it was.
func (r *Report) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	if err := r.table(w, out); err != nil {
		return err
	}
	if out.Format == "csv" || out.Format == "name" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nmachine: %v\nnoise:   %v\n", r.Machine, r.Noise)
	return err
}

// table writes the items.
func (r *Report) table(w io.Writer, out *cli.Output) error {
	head := []string{"NAME", "GOAL", "MEASURED", "P50", "P99", "PEER", "RATIO", "MET", "NOTE"}
	if out.IsWide() {
		head = slices.Insert(head, 1, "WHAT")
	}
	rows := make([][]string, 0, len(r.Items))
	for _, i := range r.Items {
		row := []string{
			i.Name, cli.Opt(i.Goal, func(g string) string { return g }), shown(i.Value, i.Unit), shown(i.P50, i.Unit), shown(i.P99, i.Unit),
			shown(i.Peer, i.Unit), shown(i.Ratio, "x"), cli.Opt(i.Met, yesNo), i.Note,
		}
		if out.IsWide() {
			row = slices.Insert(row, 1, i.What)
		}
		rows = append(rows, row)
	}
	return out.Table(w, head, rows)
}

// shown is a value with three digits that count.
func shown(v *float64, unit string) string {
	return cli.Opt(v, func(x float64) string {
		digits := 0
		if size := math.Abs(x); size < 100 {
			digits = min(4, max(0, 2-int(math.Floor(math.Log10(max(size, 1e-3))))))
		}
		return strconv.FormatFloat(x, 'f', digits, 64) + " " + unit
	})
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
