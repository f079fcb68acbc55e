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
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/pause"
)

var (
	errNotYet    = errors.New("condition not met")
	errNotSo     = errors.New("unexpected result")
	errNoProcess = errors.New("cannot read the process")
)

// Report is the result of one run, as -o json prints it.
type Report struct {
	Kind    string  `json:"kind"`
	API     string  `json:"api"`
	Quick   bool    `json:"quick"`
	Machine Machine `json:"machine"`
	Noise   Noise   `json:"noise"`
	Items   []Item  `json:"items"`
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
	progress io.Writer // nil: no progress notes
}

// run is one benchmark in progress.
type run struct {
	options

	dir     string // scratch folder
	cluster clusterOptions
	took    map[string]reading
	noise   calibration
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
	i := Item{Name: f.name, What: f.what, Unit: f.unit, Note: of.note, Value: f.value(of.values), Peer: f.value(of.peer)}
	if f.at > 0 && len(of.values) > 0 {
		i.P50, i.P99 = finite(quantile(of.values, 0.5)), finite(quantile(of.values, 0.99))
	}
	if i.Value != nil && i.Peer != nil && *i.Peer != 0 {
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
		i.Met = new(f.goal.met(*judged))
	}
	return i
}

func (f figure) value(of []float64) *float64 {
	if len(of) == 0 {
		return nil
	}
	return finite(quantile(of, cmp.Or(f.at, 1)))
}

// finite returns v, or nil if v is not a number (JSON has no infinity).
func finite(v float64) *float64 { return cli.Known(v, !math.IsNaN(v) && !math.IsInf(v, 0)) }

// quantile is the smallest value that at least the share q of all values does not exceed; 0 without values.
func quantile[T cmp.Ordered](values []T, q float64) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
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
func (r *run) note(format string, args ...any) {
	if r.progress != nil {
		cli.Notef(r.progress, format, args...)
	}
}

// end stops what a benchmark has started, and reports what is still running.
func (r *run) end(stop func() error) {
	if err := stop(); err != nil {
		r.note("%v", err)
	}
}

// await polls until is returns true; what names the condition in the error.
func await(ctx context.Context, limit time.Duration, what string, is func() bool) error {
	for end := time.Now().Add(limit); !is(); {
		if time.Now().After(end) {
			return fmt.Errorf("bench: %s: %w after %v", what, errNotYet, limit)
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// complete fills in what depends on this process.
func (o *options) complete() (err error) {
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("bench: find the programs: %w", err)
		}
		o.bin = filepath.Dir(self)
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return fmt.Errorf("bench: find the programs: %w", err)
	}
	return nil
}

// chosen are the benchmarks that --only names by their own names or by those of figures.
func (o *options) chosen() ([]benchmark, error) {
	var names []string
	for _, b := range suite() {
		names = append(names, b.name)
		for _, f := range b.figures {
			names = append(names, f.name)
		}
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			err := cli.Usage("unknown benchmark --only %q: see powerlab bench --list", name)
			if near := cli.Nearest(name, names); near != "" {
				err.Hint = "did you mean " + near + "?"
			}
			return nil, err
		}
	}
	return slices.DeleteFunc(suite(), func(b benchmark) bool { return !o.wants(b) }), nil
}

func (o *options) wants(b benchmark) bool {
	return len(o.only) == 0 || slices.Contains(o.only, b.name) || slices.ContainsFunc(b.figures, func(f figure) bool { return slices.Contains(o.only, f.name) })
}

// Bounds of a run: a benchmark that has not finished by then is reported as not measured.
const (
	fullMost  = 14 * time.Minute
	quickMost = 50 * time.Second
)

// measureAll runs the chosen benchmarks. A benchmark that fails gives items without a value, with
// the reason; an error is a bad choice or an interrupt.
func measureAll(ctx context.Context, o options, cluster clusterOptions) (*Report, map[string]reading, error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "headroom-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("bench: scratch folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &run{options: o, cluster: cluster, took: map[string]reading{}}
	timed, cancel := context.WithTimeout(ctx, pick(r, fullMost+4*cluster.duration, quickMost))
	defer cancel()
	report := &Report{Kind: "Bench", API: "v1", Quick: o.quick, Machine: thisMachine(), Items: []Item{}}
	for _, b := range chosen {
		r.noise.run()
		r.dir = filepath.Join(dir, b.name)
		report.Items = append(report.Items, b.measure(timed, r)...)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
	}
	r.noise.run()
	report.Noise, report.Machine.LoadEnd = r.noise.noise(), loadAverage()
	return report, r.took, nil
}

// measure runs one benchmark.
func (b benchmark) measure(ctx context.Context, r *run) []Item {
	began := time.Now()
	r.note("%s: %s", b.name, b.what)
	err := b.runnable(r.bin)
	if err == nil {
		err = errors.Join(os.MkdirAll(r.dir, 0o700), ctx.Err())
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
	var items []Item
	for _, f := range b.figures {
		of, ok := r.took[f.name]
		if !ok {
			of.note = why
		}
		items = append(items, f.item(of))
	}
	return items
}

// runnable reports which program is missing.
func (b benchmark) runnable(bin string) error {
	for _, p := range b.programs {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return fmt.Errorf("program %s not found in %s; build it with make build: %w", p, bin, err)
		}
	}
	return nil
}

// complete reports the figures that could not be measured as an error.
func (r *Report) complete() error {
	var missing []string
	for _, i := range r.Items {
		if i.Value == nil {
			missing = append(missing, i.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "not-measured", Exit: cli.ExitDegraded, Message: "not measured: " + strings.Join(missing, ", "),
		Hint: "see the notes for the reasons; repeat single benchmarks with --only",
	}
}

// print writes the table, then the machine and its noise.
func (r *Report) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	rows := make([][]string, 0, len(r.Items))
	for _, i := range r.Items {
		rows = append(rows, []string{
			i.Name, cli.Opt(i.Goal, func(g string) string { return g }), shown(i.Value, i.Unit), shown(i.P50, i.Unit), shown(i.P99, i.Unit),
			shown(i.Peer, i.Unit), shown(i.Ratio, "x"), cli.Opt(i.Met, yesNo), i.Note,
		})
	}
	if err := out.Table(w, []string{"NAME", "GOAL", "MEASURED", "P50", "P99", "PEER", "RATIO", "MET", "NOTE"}, rows); err != nil {
		return err
	}
	if out.Format == "csv" || out.Format == "name" {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nmachine: %v\nnoise:   %v\n", r.Machine, r.Noise)
	return err
}

// shown is a value with three significant digits.
func shown(v *float64, unit string) string {
	return cli.Opt(v, func(x float64) string { return digits(x) + " " + unit })
}

func digits(x float64) string {
	n := 0
	if size := math.Abs(x); size < 100 {
		n = min(4, max(0, 2-int(math.Floor(math.Log10(max(size, 1e-3))))))
	}
	return fmt.Sprintf("%.*f", n, x)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
