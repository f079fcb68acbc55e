// Claims: `powerlab solve estimate` prints the exact contract, with the paper's numbers;
// what is unknown is null; a mistake in the file is exit code 2 with its place; no
// file makes it print a number that is none.
package solve_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/solve"
)

// past is the worked example's, rest the query on it.
const (
	past = `"history":[{"rate_per_s":0.50,"power_w":250,"containers":9},{"rate_per_s":0.48,"power_w":250,"containers":9},` +
		`{"rate_per_s":0.46,"power_w":200,"containers":10},{"rate_per_s":0.45,"power_w":200,"containers":10}]`
	rest = `"cap_w":175,"elapsed_s":120,"tasks":200,"done":60,"containers":[9,10,12,14]}`
)

// estimate is the command with a file on stdin.
func estimate(tb testing.TB, stdin string, args ...string) (exit int, stdout, stderr string) {
	tb.Helper()
	return testkit.Run(tb, solve.NewCommand(), stdin, append([]string{"estimate"}, args...)...)
}

// answer is the estimates of a file, as generic JSON.
func answer(t *testing.T, file string) []map[string]any {
	t.Helper()
	exit, stdout, stderr := estimate(t, file, "--input", "-", "-o", "json")
	if exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	var got struct {
		Estimates []map[string]any `json:"estimates"`
	}
	testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
	return got.Estimates
}

func TestEstimatePaper(t *testing.T) {
	t.Parallel()
	got := answer(t, `{"policy":"paper","interval_s":5,`+past+`,`+rest)
	for i, want := range [][3]float64{{9, .35065625, 519.2514}, {10, .38961806, 479.3263}, {12, .46754167, 419.4386}, {14, .54546528, 376.6616}} {
		e := got[i]
		if e["containers"] != want[0] || math.Abs(e["rate_per_s"].(float64)-want[1]) > 5.1e-9 || math.Abs(e["finish_s"].(float64)-want[2]) > 5.1e-5 {
			t.Errorf("%v, want %v", e, want)
		}
		if e["finish_low_s"] != nil {
			t.Errorf("%v: the paper knows no bounds", e)
		}
	}
}

// Without a policy the learned one answers, with bounds around its result.
func TestEstimateDefault(t *testing.T) {
	t.Parallel()
	for _, e := range answer(t, `{`+past+`,`+rest) {
		if !(e["finish_low_s"].(float64) < e["finish_s"].(float64) && e["finish_s"].(float64) < e["finish_high_s"].(float64)) ||
			!(e["rate_low_per_s"].(float64) < e["rate_per_s"].(float64) && e["rate_per_s"].(float64) < e["rate_high_per_s"].(float64)) {
			t.Errorf("%v: bounds do not enclose the estimate", e)
		}
	}
}

func TestEstimateUnknownIsNull(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"paper", "released", "learned"} {
		for _, history := range []string{"", `{}`, `{"rate_per_s":null,"power_w":250,"containers":9}`, `{"rate_per_s":0,"power_w":250,"containers":9}`} {
			for _, e := range answer(t, `{"policy":"`+policy+`","history":[`+history+`],`+rest) {
				if rate, there := e["rate_per_s"]; !there || rate != nil || e["finish_s"] != nil {
					t.Errorf("%s, %s: %v, want null", policy, history, e)
				}
			}
		}
	}
	for _, e := range answer(t, `{"history":[],"cap_w":175,"elapsed_s":120,"tasks":60,"done":60,"containers":[4]}`) {
		if e["rate_per_s"] != nil || e["finish_s"] != 120.0 {
			t.Errorf("%v: all tasks are done, it has ended", e)
		}
	}
}

func TestEstimateRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"unknown field":    {"{\n \"rates\": 3}", `stdin:2:`},
		"unknown sample":   {`{"history":[{"rate":1}],` + rest, `"rate"`},
		"no JSON":          {"{\"cap_w\": NaN}", "stdin:1:11"},
		"wrong type":       {`{"cap_w":"175W"}`, "cap_w cannot be a string"},
		"too large":        {`{"cap_w":1e999}`, "cap_w"},
		"negative rate":    {`{"history":[{},{"rate_per_s":-1}],` + rest, "history[1].rate_per_s is -1"},
		"negative power":   {`{"history":[{"power_w":-1}],` + rest, "history[0].power_w is -1"},
		"negative elapsed": {`{"cap_w":175,"elapsed_s":-3,"tasks":1,"done":1,"containers":[]}`, "elapsed_s is -3"},
		"no cap":           {`{"elapsed_s":3,"tasks":1,"done":1,"containers":[]}`, "cap_w is missing"},
		"cap of nothing":   {`{"cap_w":0,"elapsed_s":3,"tasks":1,"done":1,"containers":[]}`, "cap_w is 0: must be above 0"},
		"no containers":    {`{"cap_w":175,"elapsed_s":3,"tasks":1,"done":1}`, "containers is missing"},
		"negative ones":    {`{"cap_w":175,"elapsed_s":3,"tasks":1,"done":1,"containers":[1,-2]}`, "containers[1] is -2"},
		"done and more":    {`{"cap_w":175,"elapsed_s":3,"tasks":1,"done":2,"containers":[]}`, "done is 2, more than the tasks, 1"},
		"half a task":      {`{"cap_w":175,"elapsed_s":3,"tasks":1.5,"done":1,"containers":[]}`, "tasks is 1.5"},
		"no interval":      {`{"interval_s":0,"cap_w":175,"elapsed_s":3,"tasks":1,"done":1,"containers":[]}`, "interval_s is 0"},
		"policy":           {`{"policy":"papier",` + rest, `policy "papier"`},
		"empty":            {``, "ends too early"},
	} {
		exit, stdout, stderr := estimate(t, c.file, "--input", "-")
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%s: exit %d\n%s%s", name, exit, stdout, stderr)
		}
	}
	if exit, _, stderr := estimate(t, "", "--input", "no/such/file"); exit != cli.ExitUsage || !strings.Contains(stderr, "no/such/file") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	if exit, _, stderr := estimate(t, ""); exit != cli.ExitUsage || !strings.Contains(stderr, "--input") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
}

// Whatever the file holds, it is refused with exit code 2, or answered with numbers
// that are not negative, or null.
func FuzzEstimate(f *testing.F) {
	f.Add(`{"policy":"paper",` + past + `,` + rest)
	f.Add(`{` + past + `,` + rest)
	f.Add(`{"policy":"released","history":[{"rate_per_s":1e9,"power_w":1e-9,"containers":1e-300}],` + rest)
	f.Add(`{"interval_s":1e-300,"history":[{"rate_per_s":1e-300,"power_w":1e9,"containers":1e7}],` + rest)
	f.Fuzz(func(t *testing.T, file string) {
		exit, stdout, stderr := estimate(t, file, "--input", "-", "-o", "json")
		if exit != 0 {
			if exit != cli.ExitUsage || stdout != "" || stderr == "" {
				t.Fatalf("exit %d, %q, %q", exit, stdout, stderr)
			}
			return
		}
		var got struct {
			Estimates []map[string]*float64 `json:"estimates"`
		}
		testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
		for _, e := range got.Estimates {
			for name, v := range e {
				if v != nil && !(*v >= 0) {
					t.Fatalf("%s is %g", name, *v)
				}
			}
		}
	})
}
