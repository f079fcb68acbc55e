package bench

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"headroom/internal/cli"
)

//go:embed ranges.yaml
var rangesText []byte

// ranges is ranges.yaml: what was measured, in which runs, and in which range a new run is expected.
type ranges struct {
	// NoiseMost is the spread of the fixed loop, in percent of its median, up to which timings are judged.
	NoiseMost float64       `yaml:"noise_most_pct"`
	Runs      []runRecord   `yaml:"runs"`
	Figures   []expectation `yaml:"figures"`
}

// runRecord is one run of a command.
type runRecord struct {
	ID      string `yaml:"id"`
	Date    string `yaml:"date"`
	Load    string `yaml:"load"`  // of the machine
	Noise   string `yaml:"noise"` // least / median / most of the fixed loop, ms; "" if not recorded
	Comment string `yaml:"comment"`
}

// expectation is a row of docs/benchmarks.md, with the range of its figure.
type expectation struct {
	// Figure is the item of `powerlab bench -o json`; "" for a figure of another command.
	Figure   string `yaml:"figure"`
	What     string `yaml:"what"`
	Goal     string `yaml:"goal"`
	Measured string `yaml:"measured"`
	// Spread is the lowest and the highest value of all runs, in the item's unit.
	Spread []float64 `yaml:"spread"`
	Peer   string    `yaml:"peer"`
	// Readme is the row in README.md, "" for none.
	Readme  string   `yaml:"readme"`
	Command string   `yaml:"command"`
	Runs    []string `yaml:"runs"`
	// N is the number of runs, if it is not that of Runs.
	N int `yaml:"n"`
	// Low and High bound a new value, or its ratio to the peer; Rule explains them.
	Low  *float64 `yaml:"low"`
	High *float64 `yaml:"high"`
	Of   string   `yaml:"of"` // "value" or "ratio"
	// Exact figures do not depend on the machine and are judged however noisy it was.
	Exact bool   `yaml:"exact"`
	Rule  string `yaml:"rule"`
}

// readRanges parses ranges.yaml.
func readRanges() (ranges, error) {
	var r ranges
	if err := yaml.UnmarshalWithOptions(rangesText, &r, yaml.Strict()); err != nil {
		return r, fmt.Errorf("bench: ranges.yaml: %w", err)
	}
	return r, nil
}

// checked is a figure next to its range.
type checked struct {
	Name    string   `json:"name"`
	Of      string   `json:"of"`
	Value   *float64 `json:"value"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	Verdict string   `json:"verdict"`
	Rule    string   `json:"rule"`

	bad bool
}

// judge compares each item with its range.
func (r ranges) judge(report *Report) (all []checked) {
	noisy := report.Noise.Spread > r.NoiseMost
	for _, i := range report.Items {
		c := checked{Name: i.Name, Value: i.Value, Verdict: "no range"}
		if at := slices.IndexFunc(r.Figures, func(e expectation) bool { return e.Figure == i.Name }); at >= 0 {
			e := r.Figures[at]
			c.Of, c.Low, c.High, c.Rule, c.Verdict = e.Of, e.Low, e.High, e.Rule, "ok"
			if e.Of == "ratio" {
				c.Value = i.Ratio
			}
			switch {
			case c.Value == nil:
				c.Verdict, c.bad = "not measured", true
			case noisy && !e.Exact:
				c.Verdict = "not judged: machine too noisy"
			case e.Low != nil && *c.Value < *e.Low || e.High != nil && *c.Value > *e.High:
				c.Verdict, c.bad = "out of range", true
			}
		}
		all = append(all, c)
	}
	return all
}

// check prints each figure next to its range; an error names those that are out of it.
func (r *Report) check(w io.Writer, out *cli.Output) error {
	known, err := readRanges()
	if err != nil {
		return err
	}
	all := known.judge(r)
	var bad []string
	var rows [][]string
	for _, c := range all {
		if c.bad {
			bad = append(bad, c.Name+" is "+c.Verdict)
		}
		rows = append(rows, []string{c.Name, c.Of, shown(c.Value, ""), shown(c.Low, ""), shown(c.High, ""), c.Verdict, c.Rule})
	}
	if out.IsJSON() {
		err = out.JSON(w, map[string]any{"kind": "BenchCheck", "api": "v1", "noise": r.Noise, "noise_most_pct": known.NoiseMost, "items": all})
	} else if err = out.Table(w, []string{"NAME", "OF", "MEASURED", "LOW", "HIGH", "VERDICT", "RULE"}, rows); err == nil && out.IsTable() {
		_, err = fmt.Fprintf(w, "\nspread of the fixed loop: %.0f %% of its median; timings are judged up to %.0f %%\n", r.Noise.Spread, known.NoiseMost)
	}
	if err != nil || len(bad) == 0 {
		return err
	}
	return &cli.Error{
		Code: "out-of-range", Exit: cli.ExitDegraded, Message: strings.Join(bad, ", "),
		Hint: "repeat it with --only on a machine with nothing else to do; the ranges are in lab/bench/ranges.yaml",
	}
}
