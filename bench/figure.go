package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"headroom/internal/cli"
)

// Row is one measured figure.
type Row struct {
	// Figure is the name for --only; What says what was measured.
	Figure string `json:"figure"`
	What   string `json:"what"`
	// Goal in words, with units; empty for a row that only informs.
	Goal string `json:"goal"`
	// Measured in words, with units.
	Measured string `json:"measured"`
	// Peer names what it was compared with, in words; empty without one.
	Peer string `json:"peer"`
	// Ratio is measured by peer, of the same run; nil without a peer. Above or
	// below 1 is better as the goal says.
	Ratio *float64 `json:"ratio"`
	// Verdict is "met", "missed", "not measured" or "-".
	Verdict string `json:"verdict"`
	// Values are the numbers behind Measured; the unit ends the key (_s, _ratio, _bytes).
	Values map[string]float64 `json:"values"`
}

// Verdicts.
const (
	met         = "met"
	missed      = "missed"
	notMeasured = "not measured"
	noGoal      = "-"
)

func verdict(ok bool) string {
	if ok {
		return met
	}
	return missed
}

// figure is one measurement by name.
type figure struct {
	name, what string
	measure    func(ctx context.Context, l *lab) ([]Row, error)
}

// figures are all of them, in the order of the table.
func figures() []figure {
	return []figure{
		{"cap-step", "the node's control law on the emulated plant in virtual time", measureCapStep},
		{"cut-node", "a budget cut on one emulated node under load, in real time", measureNodeCut},
		{"agent-cost", "CPU and memory of a real powerd on an idle emulated node", measureAgentCost},
		{"sample", "one sample of all counters against bare preads of the same files", measureSample},
		{"cut-cluster", "a budget cut to every node of a cluster of stream clients", measureClusterCut},
		{"failover", "the leader killed, until the new one grants", measureFailover},
		{"plan", "a budget plan for a whole site", measurePlan},
	}
}

// lab is what the measurements share.
type lab struct {
	dir   string // a folder that is removed afterwards
	bin   string // folder of the built programs
	quick bool
	notes io.Writer
}

// notef tells progress on stderr.
func (l *lab) notef(format string, args ...any) { cli.Notef(l.notes, "  "+format, args...) }

// pick is the full or the quick size of a measurement.
func (l *lab) pick(full, quick int) int {
	if l.quick {
		return quick
	}
	return full
}

// unmeasured is the row of a figure that this machine does not permit.
func unmeasured(name, what string, why error) []Row {
	return []Row{{Figure: name, What: what, Measured: why.Error(), Verdict: notMeasured}}
}

// spread are the order statistics of one sample.
type spread[T cmp.Ordered] struct{ sorted []T }

func spreadOf[T cmp.Ordered](sample []T) spread[T] { return spread[T]{slices.Sorted(slices.Values(sample))} }

// at is the p-quantile, by the nearest rank; the zero value of an empty sample.
func (s spread[T]) at(p float64) T {
	if len(s.sorted) == 0 {
		var none T
		return none
	}
	rank := int(math.Ceil(p*float64(len(s.sorted)))) - 1
	return s.sorted[min(max(rank, 0), len(s.sorted)-1)]
}

func (s spread[T]) median() T { return s.at(0.5) }
func (s spread[T]) p99() T    { return s.at(0.99) }
func (s spread[T]) max() T    { return s.at(1) }

// ratio is a by b as an optional number.
func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	r := a / b
	return &r
}

// shown is a duration at a precision that fits it.
func shown(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d >= time.Microsecond:
		return fmt.Sprintf("%.1f us", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}
