// Claims: each analyzer reports what its rule forbids, where it stands, and nothing in
// code that keeps the rule.
package vet_test

import (
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"headroom/internal/vet"
)

func TestAnalyzers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		of   *analysis.Analyzer
		on   []string // packages below testdata/src
	}{
		{"barewatts", vet.BareWatts(), []string{"barewatts/bad", "barewatts/clean", "headroom/units"}},
		{"readback", vet.ReadBack(), []string{"headroom/agent/bad", "headroom/agent/clean", "headroom/lab/bench", "headroom/rapl/sysfs", "headroom/rapl"}},
		{"blocking", vet.Blocking(), []string{"blocking/bad", "blocking/clean"}},
		{"apply", vet.Apply(), []string{"apply/bad", "apply/clean"}},
		{"judge", vet.Judge(), []string{"judge/bad", "judge/clean"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			analysistest.Run(t, analysistest.TestData(), c.of, c.on...)
		})
	}
}

// A rule that is written and not run guards nothing.
func TestAllAreRun(t *testing.T) {
	t.Parallel()
	if err := analysis.Validate(vet.All()); err != nil || len(vet.All()) != 5 {
		t.Errorf("%d analyzers, %v", len(vet.All()), err)
	}
}
