package papers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"headroom/internal/cli"
)

// Mutant is the study with one mistake built in.
type Mutant struct {
	Name string
	// Expected are the ids of the targets that must notice it: at least one.
	Expected []string
	// Targets judges the study with the mistake, on the seeds of the honest one; targets
	// that the mistake cannot touch may be left out.
	Targets func(ctx context.Context) ([]Target, error)
}

// Mutants are the mistakes that --mutants tries.
type Mutants struct {
	// Honest are the targets without any mistake, on the same seeds.
	Honest []Target
	All    []Mutant
	// Elsewhere are the targets that this command does not run, with what tries a mistake on each.
	Elsewhere []Elsewhere
}

// Elsewhere is a target whose experiment needs a real engine, so that no mutant is run here.
type Elsewhere struct {
	Target string `json:"target"`
	// How says what makes the mistake, and what it breaks there.
	How string `json:"how"`
}

// mutantReport is what --mutants prints.
type mutantReport struct {
	Paper   string   `json:"paper"`
	Seed    uint64   `json:"seed"`
	Mutants []fallen `json:"mutants"`
	// Elsewhere is left out where every target is run.
	Elsewhere []Elsewhere `json:"elsewhere,omitempty"`

	// unseen are the targets that no mutant is expected to break.
	unseen []string
}

// fallen is one mutant and the targets whose verdicts it made worse.
type fallen struct {
	Name     string   `json:"name"`
	Expected []string `json:"expected"`
	Fell     []string `json:"fell"`
}

// CanFall returns the targets that can get worse: one that is short without any mistake cannot.
func (m *Mutants) CanFall(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		return slices.ContainsFunc(m.Honest, func(t Target) bool { return t.ID == id && t.Verdict == Short })
	})
}

// missed are the targets that should have noticed the mistake and did not.
func (f *fallen) missed() []string {
	return slices.DeleteFunc(slices.Clone(f.Expected), func(id string) bool { return slices.Contains(f.Fell, id) })
}

// try runs all mutants; seed is that of the honest run.
func (m *Mutants) try(ctx context.Context, paper string, seed uint64, progress io.Writer) (*mutantReport, error) {
	r := &mutantReport{Paper: paper, Seed: seed, Elsewhere: m.Elsewhere, unseen: m.unseen()}
	for i, mutant := range m.All {
		cli.Notef(progress, "mutant %d of %d: %s", i+1, len(m.All), mutant.Name)
		targets, err := mutant.Targets(ctx)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", mutant.Name, err)
		}
		r.Mutants = append(r.Mutants, fallen{Name: mutant.Name, Expected: mutant.Expected, Fell: Fell(m.Honest, targets)})
	}
	return r, nil
}

// unseen are the targets that no mutant is expected to break, neither here nor elsewhere. Those
// that are short already cannot get worse, and are left out.
func (m *Mutants) unseen() (ids []string) {
	for i := range m.Honest {
		t := &m.Honest[i]
		here := slices.ContainsFunc(m.All, func(x Mutant) bool { return slices.Contains(x.Expected, t.ID) })
		there := slices.ContainsFunc(m.Elsewhere, func(x Elsewhere) bool { return x.Target == t.ID })
		if t.Verdict != Short && !here && !(there && t.Verdict == NotRun) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// Fell are the ids of the targets whose verdicts are worse than honest ones, in the
// honest order.
func Fell(honest, mutated []Target) []string {
	fell := []string{}
	for i := range honest {
		at := slices.IndexFunc(mutated, func(t Target) bool { return t.ID == honest[i].ID })
		if at >= 0 && honest[i].Verdict != NotRun && mutated[at].Verdict.Worse(honest[i].Verdict) {
			fell = append(fell, honest[i].ID)
		}
	}
	return fell
}

// tell prints the report and gives its verdict: nil where every mutant broke all that it was to break.
func (r *mutantReport) tell(w io.Writer, out *cli.Output) error {
	if err := r.print(w, out); err != nil {
		return err
	}
	return r.verdict()
}

func (r *mutantReport) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	var rows [][]string
	for i := range r.Mutants {
		m := &r.Mutants[i]
		rows = append(rows, []string{m.Name, strings.Join(m.Expected, " "), strings.Join(m.Fell, " "), strings.Join(m.missed(), " ")})
	}
	return out.Table(w, []string{"MUTANT", "EXPECTED", "FELL", "MISSED"}, rows)
}

// verdict is the error of mutants that targets did not notice: exit code 8.
func (r *mutantReport) verdict() error {
	var wrong []string
	for i := range r.Mutants {
		m := &r.Mutants[i]
		if len(m.Expected) == 0 {
			wrong = append(wrong, fmt.Sprintf("%q is to break nothing", m.Name))
		}
		if missed := m.missed(); len(missed) > 0 {
			wrong = append(wrong, fmt.Sprintf("%q does not break %s", m.Name, strings.Join(missed, ", ")))
		}
	}
	if len(r.unseen) > 0 {
		wrong = append(wrong, "no mutant is to break "+strings.Join(r.unseen, ", "))
	}
	if len(wrong) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded,
		Message: "targets of " + r.Paper + " did not detect a mistake: " + strings.Join(wrong, "; "),
		Hint:    "make the target stricter, or replace it: it measures nothing that the mistake affects",
	}
}
