// Claims: every study reports in one form; exit code 0 says that all targets are met,
// 8 that some fall short, and names them; what was not measured is null, not 0.
package papers_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/papers"
)

func report() *papers.Report {
	paper, got, low, high := 1.72, 1.7, 1.6, 1.8
	return &papers.Report{Paper: "cab", Seed: 7, Targets: []papers.Target{
		{ID: "D1/95", What: "runtime", Unit: "%", Paper: &paper, Got: &got, Low: &low, High: &high, Met: true, Note: "n"},
		{ID: "D6", What: "order", Note: "not measured"},
	}}
}

// The JSON form is the contract, to the byte.
func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, report().Print(&out, &cli.Output{Format: "json"}))
	want := `{"paper":"cab","seed":7,"targets":[` +
		`{"id":"D1/95","what":"runtime","unit":"%","paper":1.72,"got":1.7,"low":1.6,"high":1.8,"met":true,"note":"n"},` +
		`{"id":"D6","what":"order","unit":"","paper":null,"got":null,"low":null,"high":null,"met":false,"note":"notmeasured"}]}`
	if got := strings.Join(strings.Fields(out.String()), ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// The table says the same to a person.
func TestTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	testkit.Check(t, report().Print(&out, &cli.Output{NoHeaders: true}))
	want := "D1/95  runtime  1.72 %  1.70 %  1.60 to 1.80  met    n\nD6     order    -       -       -             SHORT  not measured\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// Exit code 8 names what falls short; 0 needs all of them met.
func TestVerdict(t *testing.T) {
	t.Parallel()
	r := report()
	e, ok := errors.AsType[*cli.Error](r.Verdict())
	if !ok || e.Exit != cli.ExitDegraded || !strings.Contains(e.Message, "1 of 2 targets of cab fall short: D6") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	r.Targets = r.Targets[:1]
	if err := r.Verdict(); err != nil {
		t.Errorf("%v", err)
	}
}
