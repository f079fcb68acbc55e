// Claims: `powerlab deflate` answers with the chosen setting, what binds and the frontier;
// with the nearest setting where none keeps the bounds; and refuses what makes no sense with
// its place in the file.
package studies

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

const deflateInput = `{"sprint_budget": {"capacity_j": 22000, "refill_w": 9}, "busy_w": 180, "classes": [
  {"name": "low", "rate_per_s": 0.003, "error_max": 0.3, "percentiles_max_s": {"0.95": 1500},
   "job": {"slots": 20, "maps": 50, "map_s": 40, "reduces": 10, "reduce_s": 10, "setup_s": 5, "shuffle_s": 5},
   "profile": [{"drop": 0.1, "error": 0.085}, {"drop": 0.2, "error": 0.15}, {"drop": 0.4, "error": 0.32}]},
  {"name": "high", "rate_per_s": 0.001, "mean_max_s": 220,
   "job": {"model": "wave", "cv": 0.3, "slots": 20, "maps": 50, "map_s": 50, "setup_s": 5},
   "sprint": {"speed_up": 2.5, "extra_w": 90}}]}`

// runDeflate is the command over a file.
func runDeflate(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "classes.json")
	testkit.WriteFile(t, file, input)
	var out bytes.Buffer
	cmd := NewDeflateCommand()
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(append([]string{"--input", file}, args...))
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestDeflate(t *testing.T) {
	t.Parallel()
	svg := filepath.Join(t.TempDir(), "frontier.svg")
	text := testkit.Need(runDeflate(t, deflateInput, "-o", "json", "--plot", svg))(t)
	var a deflated
	testkit.Check(t, json.Unmarshal([]byte(text), &a))
	if !a.Feasible || a.Chosen == nil || a.Nearest != nil || len(a.Frontier) == 0 || !a.Complete {
		t.Fatalf("%s", text)
	}
	low, high := a.Chosen.Classes[0], a.Chosen.Classes[1]
	if low.P95 > 1500 || high.Mean > 220 || low.Error > 0.3 || low.After != nil || low.Granted != nil || high.Theta != 0 {
		t.Errorf("low %+v, high %+v", low, high)
	}
	if len(a.Binding) == 0 || len(a.Binding[0].Missed) == 0 {
		t.Errorf("nothing binds: %+v", a.Binding)
	}
	drawn := testkit.Need(os.ReadFile(svg))(t)
	if err := xml.Unmarshal(drawn, new(struct{})); err != nil {
		t.Errorf("the picture is no XML: %v", err)
	}
}

// What no setting keeps is said, with the nearest one; what is too much load likewise.
func TestDeflateInfeasible(t *testing.T) {
	t.Parallel()
	text := testkit.Need(runDeflate(t, strings.Replace(deflateInput, `"mean_max_s": 220`, `"mean_max_s": 20`, 1)))(t)
	for _, want := range []string{"infeasible  no setting keeps all bounds\n", "missed     mean of high: ", "bound 20.0 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	text = testkit.Need(runDeflate(t, strings.Replace(deflateInput, "0.003", "0.03", 1)))(t)
	if !strings.Contains(text, "overload   load ") || !strings.Contains(text, "take jobs away") {
		t.Errorf("%s", text)
	}
}

func TestDeflateRefuses(t *testing.T) {
	t.Parallel()
	for want, change := range map[string][2]string{
		"classes[0].rate_per_s is 0":                      {`"rate_per_s": 0.003`, `"rate_per_s": 0`},
		"classes[0].profile is empty":                     {`[{"drop": 0.1, "error": 0.085}, {"drop": 0.2, "error": 0.15}, {"drop": 0.4, "error": 0.32}]`, `[]`},
		"classes[0].profile[0].drop is 1.1":               {`"drop": 0.1`, `"drop": 1.1`},
		"classes[0].profile[0]: drop or error is missing": {`"drop": 0.1, `, ``},
		`classes[0].profile: unknown field "dorp"`:        {`"drop": 0.1`, `"dorp": 0.1`},
		"classes[0].percentiles_max_s: invalid":           {`"0.95"`, `"p95"`},
		"classes[0].percentiles_max_s[0] bounds":          {`"0.95"`, `"95"`},
		"classes[0].job.slots is 0":                       {`"slots": 20, "maps": 50, "map_s": 40`, `"maps": 50, "map_s": 40`},
		"classes[0].job.stages":                           {`"setup_s": 5, "shuffle_s"`, `"stages": "some", "shuffle_s"`},
		"classes[1].job.model":                            {`"wave"`, `"ripple"`},
		"classes[1].job.map_s with cv":                    {`"cv": 0.3`, `"cv": 0`},
		"classes[1].mean_max_s is 0":                      {`"mean_max_s": 220`, `"mean_max_s": 0`},
		"classes[1].sprint.extra_w is -90":                {`"extra_w": 90`, `"extra_w": -90`},
		"sprint_budget.refill_w is -9":                    {`"refill_w": 9`, `"refill_w": -9`},
		`discipline is "fifo"`:                            {`{"sprint_budget"`, `{"discipline": "fifo", "sprint_budget"`},
		"classes[0].job cannot be modelled":               {`"map_s": 40`, `"map_s": -1`},
		"classes[0].job is missing: needs":                {`"job": {"slots": 20, "maps": 50, "map_s": 40, "reduces": 10, "reduce_s": 10, "setup_s": 5, "shuffle_s": 5},`, ``},
		"classes[1].thetas[0] is 2; a drop ratio is from": {`"mean_max_s": 220`, `"thetas": [2]`},
	} {
		input := strings.Replace(deflateInput, change[0], change[1], 1)
		if input == deflateInput {
			t.Errorf("%s: nothing to change", want)
		}
		_, err := runDeflate(t, input)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
