package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/pause"
)

// Report is the result of one run, as -o json prints it.
type Report struct {
	Kind    string `json:"kind"`
	API     string `json:"api"`
	Quick   bool   `json:"quick"`
	Machine string `json:"machine"`
	Noise   Noise  `json:"noise"`
	Items   []Item `json:"items"`
}

// Item is one figure. Unknown values are nil.
type Item struct {
	Name string `json:"name"`
	// What is measured, in words.
	What string `json:"what"`
	// Goal in words, e.g. "p99 <= 2 s".
	Goal *string `json:"goal"`
	// Value is the figure that the goal is about, in Unit.
	Value *float64 `json:"value"`
	Unit  string   `json:"unit"`
	// P50 and P99 are quantiles over the repetitions.
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
	// Peer is the same figure of another way to do the same, in the same run.
	Peer *float64 `json:"peer"`
	// Ratio is Value over Peer: below 1 is better than the peer.
	Ratio *float64 `json:"ratio"`
	// Met reports whether the goal is met; nil without a goal or a value.
	Met *bool `json:"met"`
	// Note names the peer, the repetitions, or why there is no value.
	Note string `json:"note"`
}

// options select what is measured and how thoroughly.
type options struct {
	only     []string // benchmarks or figures; empty: all
	quick    bool
	bin      string
	progress io.Writer
}

// run is one benchmark in progress.
type run struct {
	options

	dir     string // scratch folder
	cluster clusterOptions
	took    map[string]reading
}

// reading is the measurement of one figure.
type reading struct {
	values, peer []float64 // repetitions, or one value
	note         string
}

// put stores a measurement.
func (r *run) put(figure string, values, peer []float64, format string, args ...any) {
	r.took[figure] = reading{values, peer, fmt.Sprintf(format, args...)}
}

// one is the measurement of a figure that is a single value.
func one(v float64) []float64 { return []float64{v} }

// item turns a measurement into a row of the report.
func (f figure) item(of reading) Item {
	at := cmp.Or(f.at, 1)
	i := Item{Name: f.name, What: f.what, Unit: f.unit, Note: of.note, Value: valueOf(of.values, at), Peer: valueOf(of.peer, at)}
	if f.at > 0 {
		i.P50, i.P99 = valueOf(of.values, 0.5), valueOf(of.values, 0.99)
	}
	if i.Value != nil && i.Peer != nil {
		i.Ratio = finite(*i.Value / *i.Peer)
	}
	if f.goal == nil {
		return i
	}
	i.Goal = new(f.text())
	judged := i.Value
	if f.goal.ratio {
		judged = i.Ratio
	}
	if judged != nil {
		i.Met = new(*judged >= f.goal.low && *judged <= f.goal.high)
	}
	return i
}

// valueOf is a quantile of measured values; nil without one.
func valueOf(values []float64, at float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	return finite(quantile(values, at))
}

// finite returns v, or nil if v is not a number (JSON has no infinity).
func finite(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }

// quantile is the smallest of some values that at least the share q of them does not exceed.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// pick returns the thorough number, or the quick one.
func pick[T any](r *run, full, quick T) T {
	if r.quick {
		return quick
	}
	return full
}

// repeat calls do runs times, but stops after limit once it has run a few times.
func repeat(ctx context.Context, runs int, limit time.Duration, do func(i int) error) error {
	const least = 5
	start := time.Now()
	for i := 0; i < least || i < runs && time.Since(start) < limit; i++ {
		if err := errors.Join(ctx.Err(), do(i)); err != nil {
			return err
		}
	}
	return nil
}

// note prints the progress of the run.
func (r *run) note(format string, args ...any) { cli.Notef(r.progress, format, args...) }

// end stops what a benchmark has started, and reports what is still running.
func (r *run) end(stop func() error) {
	if err := stop(); err != nil {
		r.note("%v", err)
	}
}

// await polls until is returns true; what names the condition in the error.
func await(ctx context.Context, limit time.Duration, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !is() {
		if !pause.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("bench: not within %v: %s: %w", limit, what, ctx.Err())
		}
	}
	return nil
}

// chosen are the benchmarks that --only names by their own names or by those of figures.
func chosen(only []string) (all []benchmark, err error) {
	var names []string
	for _, b := range suite() {
		own := []string{b.name}
		for _, f := range b.figures {
			own = append(own, f.name)
		}
		names = append(names, own...)
		if len(only) == 0 || slices.ContainsFunc(own, func(name string) bool { return slices.Contains(only, name) }) {
			all = append(all, b)
		}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			err := cli.Usage("unknown benchmark --only %q: see powerlab bench --list", name)
			if near := cli.Nearest(name, names); near != "" {
				err.Hint = "did you mean " + near + "?"
			}
			return nil, err
		}
	}
	return all, nil
}

// Bounds of a run: a benchmark that has not finished by then is reported as not measured.
const (
	fullMost  = 14 * time.Minute
	quickMost = 50 * time.Second
)

// measureAll runs the chosen benchmarks. A benchmark that fails gives items without a value, with
// the reason; an error is a bad choice or an interrupt.
func measureAll(ctx context.Context, o options, cluster clusterOptions) (*Report, map[string]reading, error) {
	all, err := chosen(o.only)
	if err != nil {
		return nil, nil, err
	}
	self, errSelf := os.Executable()
	o.bin, err = filepath.Abs(cmp.Or(o.bin, filepath.Dir(self)))
	dir, errDir := os.MkdirTemp("", "headroom-bench-")
	if err := errors.Join(errSelf, err, errDir); err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &run{options: o, cluster: cluster, took: map[string]reading{}}
	timed, cancel := context.WithTimeout(ctx, pick(r, fullMost+4*cluster.duration, quickMost))
	defer cancel()
	report := &Report{Kind: "Bench", API: "v1", Quick: o.quick, Items: []Item{}}
	load := shown(loadAverage(), "")
	var noise calibration
	for _, b := range all {
		noise.run()
		r.dir = filepath.Join(dir, b.name)
		report.Items = append(report.Items, b.measure(timed, r)...)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	noise.run()
	report.Noise = noise.noise()
	report.Machine = fmt.Sprintf("%s, load %s at the start and %s at the end, %s", Machine(), load, shown(loadAverage(), ""), runtime.Version())
	return report, r.took, nil
}

// measure runs one benchmark.
func (b benchmark) measure(ctx context.Context, r *run) (items []Item) {
	began := time.Now()
	r.note("%s: %s", b.name, b.what)
	err := errors.Join(os.MkdirAll(r.dir, 0o700), ctx.Err())
	for _, p := range b.programs {
		if _, missing := os.Stat(filepath.Join(r.bin, p)); missing != nil {
			err = fmt.Errorf("program %s not found in %s; build it with make build: %w", p, r.bin, missing)
		}
	}
	if err == nil {
		err = b.run(ctx, r)
	}
	why := "not measured"
	if err != nil {
		why = "not measured: " + strings.TrimPrefix(err.Error(), "bench: ")
		r.note("%s: %s", b.name, why)
	}
	r.note("%s: %.1f s", b.name, time.Since(began).Seconds())
	for _, f := range b.figures {
		of, ok := r.took[f.name]
		if !ok {
			of.note = why
		}
		items = append(items, f.item(of))
	}
	return items
}

// print writes the table, then the machine and its noise; or a document. Figures that could not be measured are an error.
func (r *Report) print(w io.Writer, out *cli.Output, document any) error {
	var missing []string
	var rows [][]string
	for _, i := range r.Items {
		if i.Value == nil {
			missing = append(missing, i.Name)
		}
		met := cli.Opt(i.Met, func(met bool) string { return map[bool]string{true: "yes", false: "no"}[met] })
		rows = append(rows, []string{
			i.Name, cli.Opt(i.Goal, func(g string) string { return g }), shown(i.Value, i.Unit), shown(i.P50, i.Unit), shown(i.P99, i.Unit),
			shown(i.Peer, i.Unit), shown(i.Ratio, "x"), met, i.Note,
		})
	}
	var err error
	if out.IsJSON() {
		err = out.JSON(w, document)
	} else if err = out.Table(w, []string{"NAME", "GOAL", "MEASURED", "P50", "P99", "PEER", "RATIO", "MET", "NOTE"}, rows); err == nil && out.IsTable() {
		_, err = fmt.Fprintf(w, "\nmachine: %v\nnoise:   %v\n", r.Machine, r.Noise)
	}
	if err != nil || len(missing) == 0 {
		return err
	}
	return &cli.Error{
		Code: "not-measured", Exit: cli.ExitDegraded, Message: "not measured: " + strings.Join(missing, ", "),
		Hint: "see the notes for the reasons; repeat single benchmarks with --only",
	}
}

// shown is a value with three significant digits.
func shown(v *float64, unit string) string {
	return cli.Opt(v, func(x float64) string {
		n := 0
		if size := math.Abs(x); size < 100 {
			n = min(4, max(0, 2-int(math.Floor(math.Log10(max(size, 1e-3))))))
		}
		return strings.TrimSpace(fmt.Sprintf("%.*f %s", n, x, unit))
	})
}
