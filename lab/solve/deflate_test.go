// Claims: `powerlab solve deflate` answers with the chosen setting, what binds and the frontier;
// with the nearest setting where none keeps the bounds; and refuses what makes no sense with
// its place in the file.
package solve_test

import (
	"encoding/json"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/solve"
)

const deflateInput = `{"sprint_budget": {"capacity_j": 22000, "refill_w": 9}, "busy_w": 180, "classes": [
  {"name": "low", "rate_per_s": 0.003, "error_max": 0.3, "percentiles_max_s": {"0.95": 1500},
   "job": {"slots": 20, "maps": 50, "map_s": 40, "reduces": 10, "reduce_s": 10, "setup_s": 5, "shuffle_s": 5},
   "profile": [{"drop": 0.1, "error": 0.085}, {"drop": 0.2, "error": 0.15}, {"drop": 0.4, "error": 0.32}]},
  {"name": "high", "rate_per_s": 0.001, "mean_max_s": 220,
   "job": {"model": "wave", "cv": 0.3, "slots": 20, "maps": 50, "map_s": 50, "setup_s": 5},
   "sprint": {"speed_up": 2.5, "extra_w": 90}}]}`

// runDeflate is the command over an input.
func runDeflate(t *testing.T, input string) (exit int, stdout, stderr string) {
	t.Helper()
	return testkit.Run(t, solve.NewCommand(), input, "deflate", "--input", "-", "-o", "json")
}

// deflated are fields of the answer.
type deflated struct {
	Feasible, Complete bool
	Chosen, Nearest    *struct {
		Classes []struct {
			Mean    float64 `json:"mean_s"`
			P95     float64 `json:"p95_s"`
			Error   float64
			Theta   float64
			After   *float64 `json:"sprint_after_s"`
			Granted *float64
		}
		Missed []map[string]any
	}
	Frontier, Binding []map[string]any
	Overload          map[string]float64
}

func deflate(t *testing.T, input string) (a deflated) {
	t.Helper()
	exit, stdout, stderr := runDeflate(t, input)
	if exit != 0 {
		t.Fatal(stderr)
	}
	testkit.Check(t, json.Unmarshal([]byte(stdout), &a))
	return a
}

func TestDeflate(t *testing.T) {
	t.Parallel()
	a := deflate(t, deflateInput)
	if !a.Feasible || a.Chosen == nil || a.Nearest != nil || len(a.Frontier) == 0 || !a.Complete {
		t.Fatalf("%+v", a)
	}
	low, high := a.Chosen.Classes[0], a.Chosen.Classes[1]
	if low.P95 > 1500 || high.Mean > 220 || low.Error > 0.3 || low.After != nil || low.Granted != nil || high.Theta != 0 {
		t.Errorf("low %+v, high %+v", low, high)
	}
	if len(a.Binding) == 0 || len(a.Binding[0]["missed"].([]any)) == 0 {
		t.Errorf("nothing binds: %+v", a.Binding)
	}
}

// If no setting keeps the bounds, the answer is the nearest one; too much load is named as such.
func TestDeflateInfeasible(t *testing.T) {
	t.Parallel()
	a := deflate(t, strings.Replace(deflateInput, `"mean_max_s": 220`, `"mean_max_s": 20`, 1))
	if a.Feasible || a.Nearest == nil || len(a.Nearest.Missed) == 0 || a.Nearest.Missed[0]["bound"] != 20.0 {
		t.Errorf("%+v", a)
	}
	if a := deflate(t, strings.Replace(deflateInput, "0.003", "0.03", 1)); a.Feasible || !(a.Overload["load"] > 1) {
		t.Errorf("%+v", a)
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
		if exit, _, stderr := runDeflate(t, input); exit != cli.ExitUsage || !strings.Contains(strings.ReplaceAll(stderr, `\"`, `"`), want) {
			t.Errorf("%s: exit %d, %s", want, exit, stderr)
		}
	}
}
