// Claims: `powerlab solve queue` prints the exact contract, with the closed forms' numbers; a
// simulated answer is marked as one; a mistake in the file is exit code 2 with its place
// and a hint; no file makes it print a number that is none.
package solve_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/solve"
)

// two is a file of two exponential classes: rho is 0.5.
const two = `"arrivals":{"rates":[0.3,0.2]},"services":[{"alpha":[1],"A":[[-1]]},{"alpha":[1],"A":[[-1]]}]`

// queue is the command with a file on stdin.
func queue(tb testing.TB, stdin string, args ...string) (exit int, stdout, stderr string) {
	tb.Helper()
	return testkit.Run(tb, solve.NewCommand(), stdin, append([]string{"queue"}, append([]string{"--input", "-"}, args...)...)...)
}

type queueMeasure struct {
	Mean        *float64
	Moments     []*float64
	Percentiles map[string]*float64
	Interval    *struct{ Mean [2]*float64 }
}

type queueAnswer struct {
	Rho        *float64
	Solve      *float64 `json:"solve_s"`
	Classes    []map[string]queueMeasure
	Simulation *struct {
		Jobs, Replications, Seed int
		Waste                    *float64
	}
}

// queueJSON is the answer to a file.
func queueJSON(t *testing.T, file string) queueAnswer {
	t.Helper()
	exit, stdout, stderr := queue(t, file, "-o", "json")
	if exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	var got queueAnswer
	dec := json.NewDecoder(strings.NewReader(stdout))
	testkit.Check(t, dec.Decode(&got))
	return got
}

func TestQueueSolves(t *testing.T) {
	t.Parallel()
	for discipline, want := range map[string][4]float64{ // Cobham: waits and sojourns of the low and the high class
		"np": {0.5 / (0.8 * 0.5), 0.5/(0.8*0.5) + 1, 0.5 / 0.8, 0.5/0.8 + 1},
		"pr": {0.5 / (0.8 * 0.5), 0.5/(0.8*0.5) + 1/0.8, 0.2 / 0.8, 1 / 0.8},
	} {
		got := queueJSON(t, `{"discipline":"`+discipline+`",`+two+`,"percentiles":[0.95,0.5],"moments":2}`)
		if *got.Rho != 0.5 || !(*got.Solve > 0) || len(got.Classes) != 2 || got.Simulation != nil {
			t.Fatalf("%+v", got)
		}
		for k, c := range got.Classes {
			for i, name := range []string{"wait", "sojourn"} {
				m := c[name]
				if math.Abs(*m.Mean-want[2*k+i]) > 1e-12 || len(m.Moments) != 2 || *m.Moments[0] != *m.Mean || m.Interval != nil {
					t.Errorf("%s class %d %s: %+v, want mean %v", discipline, k, name, m, want[2*k+i])
				}
				if len(m.Percentiles) != 2 || !(*m.Percentiles["0.5"] <= *m.Percentiles["0.95"]) {
					t.Errorf("%s class %d %s: percentiles %v", discipline, k, name, m.Percentiles)
				}
			}
		}
	}
}

// What the file leaves out is as usual: three moments and the 95th percentile.
func TestQueueDefaults(t *testing.T) {
	t.Parallel()
	m := queueJSON(t, `{"discipline":"np",`+two+`}`).Classes[0]["sojourn"]
	if len(m.Moments) != 3 || len(m.Percentiles) != 1 || m.Percentiles["0.95"] == nil {
		t.Errorf("%+v", m)
	}
	if m = queueJSON(t, `{"discipline":"np",`+two+`,"percentiles":[]}`).Classes[0]["wait"]; len(m.Percentiles) != 0 {
		t.Errorf("%+v", m)
	}
}

// Killing and restarting is simulated, is reported as simulated, and is the same each time.
func TestQueueSimulates(t *testing.T) {
	t.Parallel()
	file := `{"discipline":"p",` + two + `,"simulation":{"jobs":2000,"replications":5,"seed":9}}`
	got := queueJSON(t, file)
	if s := got.Simulation; s == nil || s.Jobs != 2000 || s.Replications != 5 || s.Seed != 9 || !(*s.Waste > 0.05 && *s.Waste < 0.3) {
		t.Fatalf("simulation %+v", s)
	}
	if m := got.Classes[0]["sojourn"]; m.Interval == nil || !(*m.Interval.Mean[0] < *m.Mean && *m.Mean < *m.Interval.Mean[1]) {
		t.Errorf("%+v", m)
	}
	if again := queueJSON(t, file); *again.Classes[0]["wait"].Mean != *got.Classes[0]["wait"].Mean {
		t.Error("the same seed gives another answer")
	}
	// A class without jobs has seen nothing, and that is unknown.
	if m := queueJSON(t, strings.Replace(file, "0.2", "0", 1)).Classes[1]["wait"]; m.Mean != nil || m.Percentiles["0.95"] != nil {
		t.Errorf("%+v, want nulls", m)
	}
}

func TestQueueRefuses(t *testing.T) {
	t.Parallel()
	one := func(service string) string {
		return `{"discipline":"np","arrivals":{"rates":[0.5]},"services":[` + service + `]}`
	}
	for name, c := range map[string]struct{ file, want string }{
		"unknown field":   {"{\n \"rates\": 3}", "stdin:2:"},
		"no JSON":         {"{\"moments\": NaN}", "stdin:1:13"},
		"wrong type":      {`{"moments":"three"}`, "moments cannot be a string"},
		"too large":       {one(`{"alpha":[1],"A":[[-1e999]]}`), "A cannot be"},
		"discipline":      {`{` + two + `}`, `unknown discipline "": must be one of [np pr p]`},
		"no services":     {`{"discipline":"np","arrivals":{"rates":[]}}`, "services are 0"},
		"alpha":           {one(`{"alpha":[0.5],"A":[[-1]]}`), "services[0].alpha sums to 0.5"},
		"row sum":         {one(`{"alpha":[1,0],"A":[[-1,2],[0,-1]]}`), "services[0].A[0] sums to 1"},
		"diagonal":        {one(`{"alpha":[1],"A":[[1]]}`), "services[0].A[0][0] is 1"},
		"never absorbed":  {one(`{"alpha":[1,0],"A":[[-1,1],[1,-1]]}`), "services[0].A[0] is never absorbed"},
		"shape":           {one(`{"alpha":[1,0],"A":[[-1,1],[1]]}`), "services[0].A[1] has 1 columns"},
		"unstable":        {strings.Replace(`{"discipline":"np",`+two+`}`, "0.3", "0.9", 1), "rho is 1.1 and must be below 1"},
		"rates":           {`{"discipline":"np",` + strings.Replace(two, ",0.2", "", 1) + `}`, "arrivals.rates are 1 for 2 services"},
		"negative rate":   {`{"discipline":"np",` + strings.Replace(two, "0.3", "-3", 1) + `}`, "arrivals.rates[0] is -3"},
		"percentile":      {`{"discipline":"np",` + two + `,"percentiles":[95]}`, "percentiles[0] is 95"},
		"moments":         {`{"discipline":"np",` + two + `,"moments":0}`, "moments is 0"},
		"both":            {`{"discipline":"np","arrivals":{"rates":[1],"D":[[[-1]]]},"services":[{"alpha":[1],"A":[[-9]]}]}`, "either rates or D"},
		"D's shape":       {`{"discipline":"np","arrivals":{"D":[[[-1,1],[1,-1]],[[1],[1]]]},"services":[{"alpha":[1],"A":[[-9]]}]}`, "arrivals.D[1][0] has 1 columns"},
		"no replications": {`{"discipline":"p",` + two + `,"simulation":{"replications":0}}`, "simulation.replications is 0: must be from 1"},
		"few jobs":        {`{"discipline":"p",` + two + `,"simulation":{"jobs":7}}`, "jobs are 7"},
		"empty":           {``, "ends too early"},
	} {
		exit, stdout, stderr := queue(t, c.file)
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%s: exit %d\n%s%s", name, exit, stdout, stderr)
		}
	}
}

// A load that is too near to 1 is a limit of the method, not a mistake: exit code 1.
func TestQueueTellsLimits(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := queue(t, strings.Replace(`{"discipline":"np",`+two+`}`, "0.3", "0.7999999", 1))
	if exit != 1 || stdout != "" || !strings.Contains(stderr, "within 1e-06 of 1") || !strings.Contains(stderr, "\nhint: lower the arrival rates") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
}

// Whatever the file holds, it is refused, or answered with numbers that are not negative.
func FuzzQueue(f *testing.F) {
	for _, d := range []string{"np", "pr"} {
		f.Add(fmt.Sprintf(`{"discipline":%q,%s,"percentiles":[0.95,0.001]}`, d, two))
		f.Add(fmt.Sprintf(`{"discipline":%q,"arrivals":{"rates":[1e300,1e-300]},"services":[{"alpha":[1],"A":[[-1e301]]},{"alpha":[1],"A":[[-1e-299]]}],"moments":20}`, d))
		f.Add(fmt.Sprintf(`{"discipline":%q,"arrivals":{"rates":[0.1,1e-9]},"services":[{"alpha":[0.5,0.5],"A":[[-3,1],[2,-2.5]]},{"alpha":[1],"A":[[-1e-7]]}]}`, d))
	}
	f.Add(`{"discipline":"p",` + two + `,"simulation":{"jobs":100,"replications":2}}`)
	f.Fuzz(func(t *testing.T, file string) {
		exit, stdout, stderr := queue(t, file, "-o", "json")
		if exit != 0 {
			if stdout != "" || stderr == "" {
				t.Fatalf("exit %d, %q, %q", exit, stdout, stderr)
			}
			return
		}
		var got queueAnswer
		testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
		for _, c := range got.Classes {
			for name, m := range c {
				all := append([]*float64{m.Mean}, m.Moments...)
				for _, p := range m.Percentiles {
					all = append(all, p)
				}
				for _, v := range all {
					if v == nil && got.Simulation == nil || v != nil && !(*v >= 0) {
						t.Fatalf("%s: %v", name, v)
					}
				}
			}
		}
	})
}
