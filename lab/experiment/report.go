package experiment

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"headroom/internal/cli"
	"headroom/lab/report"
)

// Listed is a spec with the number of its finished runs.
type Listed struct {
	Spec     string   `json:"spec"`
	Says     string   `json:"says"`
	Variants []string `json:"variants"`
	Pairs    int      `json:"pairs"`
	Needed   int      `json:"pairs_needed"`
	Runs     int      `json:"runs"`
	Noisy    int      `json:"runs_not_counted"`
}

func list(dir string, specs []*Spec) (all []Listed, err error) {
	for _, s := range specs {
		records, err := Read(dir, s.Name)
		if err != nil {
			return nil, err
		}
		counted := slices.DeleteFunc(slices.Clone(records), func(r Record) bool { return r.Noisy })
		all = append(all, Listed{
			Spec: s.Name, Says: s.Says, Variants: s.Variants, Pairs: len(wholePairs(s, records)), Needed: wanted(s, records), Runs: len(records), Noisy: len(records) - len(counted),
		})
	}
	return all, nil
}

func printList(w io.Writer, out *cli.Output, all []Listed) error {
	if out.IsJSON() {
		return out.JSON(w, map[string]any{"specs": all})
	}
	var rows [][]string
	for _, l := range all {
		variants := strings.Join(l.Variants, " ")
		if len(l.Variants) > 5 {
			variants = fmt.Sprintf("%d variants", len(l.Variants))
		}
		rows = append(rows, []string{l.Spec, fmt.Sprintf("%d of %d", l.Pairs, l.Needed), strconv.Itoa(l.Runs), strconv.Itoa(l.Noisy), variants, l.Says})
	}
	return out.Table(w, []string{"SPEC", "PAIRS", "RUNS", "NOISY", "VARIANTS", "WHAT"}, rows)
}

func judged(dir string, specs []*Spec) (all []Judged, err error) {
	for _, s := range specs {
		records, err := Read(dir, s.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, Judge(s, records)...)
	}
	return all, nil
}

func rows(all []Judged) (rows [][]string) {
	for _, j := range all {
		verdict, bounds := string(j.Verdict), ""
		if j.More > 0 {
			verdict += fmt.Sprintf(", %d more", j.More)
		}
		if j.Low != nil {
			bounds = fmt.Sprintf("%.2f to %.2f", *j.Low, *j.High)
		}
		got := cli.Opt(j.Got, func(x float64) string { return strings.TrimSpace(fmt.Sprintf("%.2f %s", x, j.Unit)) })
		rows = append(rows, []string{j.Spec, j.Claim, j.What, got, bounds, strconv.Itoa(j.Pairs), verdict})
	}
	return rows
}

// Markdown writes the claims of specs as the table of a page of docs.
func Markdown(w io.Writer, dir string, specs []*Spec) error {
	all, err := judged(dir, specs)
	if err != nil {
		return err
	}
	return report.Markdown(w, append([][]string{{"spec", "claim", "quantity", "got", "bounds", "pairs", "verdict"}}, rows(all)...))
}

// printJudged writes the claims of specs. The error is of those that fall short.
func printJudged(w io.Writer, out *cli.Output, dir string, specs []*Spec) error {
	all, err := judged(dir, specs)
	if err != nil {
		return err
	}
	if out.IsJSON() {
		err = out.JSON(w, map[string]any{"claims": all})
	} else {
		err = out.Table(w, []string{"SPEC", "CLAIM", "WHAT", "GOT", "BOUNDS", "PAIRS", "VERDICT"}, rows(all))
	}
	if err != nil {
		return err
	}
	var names []string
	for _, j := range all {
		if j.Verdict == report.Short {
			names = append(names, j.Spec+" "+j.Claim)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: fmt.Sprintf("%d of %d claims are short: %s", len(names), len(all), strings.Join(names, ", ")),
		Hint: "see lab/docs for the reasons",
	}
}
