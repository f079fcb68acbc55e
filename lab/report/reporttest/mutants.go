// Package reporttest tests that the targets of a study detect mistakes.
//
// The one idea: a mutant is a study with one deliberate mistake. A target that no mistake makes worse
// measures nothing.
package reporttest

import (
	"context"
	"slices"
	"testing"

	"headroom/lab/report"
)

// Mutant is the study with one mistake.
type Mutant struct {
	Name string
	// Expected are the ids of the targets that must get worse, at least one.
	Expected []string
	// Targets judges the study with the mistake, on the seeds of the honest one. Targets that the
	// mistake cannot touch may be left out.
	Targets func(ctx context.Context) ([]report.Target, error)
}

// Mutants checks that each mutant makes its targets worse, but for those that are short or not run
// without it, and that each other target is expected by a mutant. Mutants that can make nothing worse
// do not run.
func Mutants(t *testing.T, honest []report.Target, all []Mutant) {
	t.Helper()
	verdicts := map[string]report.Verdict{}
	for _, x := range honest {
		if _, twice := verdicts[x.ID]; twice {
			t.Errorf("%s: more than one target", x.ID)
		}
		verdicts[x.ID] = x.Verdict
		if !fixed(x.Verdict) && !slices.ContainsFunc(all, func(m Mutant) bool { return slices.Contains(m.Expected, x.ID) }) {
			t.Errorf("%s: no mutant makes it worse", x.ID)
		}
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			expected := slices.DeleteFunc(slices.Clone(m.Expected), func(id string) bool {
				v, known := verdicts[id]
				if !known {
					t.Errorf("no target %s", id)
				}
				return fixed(v)
			})
			if len(m.Expected) == 0 {
				t.Error("is expected to make nothing worse")
			}
			if len(expected) == 0 {
				return
			}
			targets, err := m.Targets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range expected {
				if i := slices.IndexFunc(targets, func(x report.Target) bool { return x.ID == id }); i < 0 || !targets[i].Verdict.Worse(verdicts[id]) {
					t.Errorf("%s is not worse", id)
				}
			}
		})
	}
}

// fixed reports whether a verdict cannot get worse.
func fixed(v report.Verdict) bool { return v == report.Short || v == report.NotRun || v == "" }
