// Claims: an output is the exact contract; loads are those of the input; a mistake in the input or the trace is an error with its
// place and the rule; no file makes it panic; with the published traces, the cells of the paper's Fig. 4.11 are met.
package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/jsonfile"
	"headroom/internal/testkit"
	"headroom/lab/traces"
)

// trace is a small one: two short jobs and a long one.
const trace = "0 2 1 0.5 1.5\n1.5 1 30 30\n4 3 2 2 2 2\n"

// write writes a trace and returns the file that names it, with more of its fields.
func write(tb testing.TB, text, more string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "trace.txt")
	testkit.WriteFile(tb, path, text)
	return fmt.Sprintf(`{"policy":"pigeon","workers":4,"groups":2,"reserved":1,"w":null,"cutoff_s":5,"hop_s":0,"distributors":1,"seed":1,"trace":%q%s}`, path, more)
}

// solved is the output of an input, as JSON.
func solved(in string) (string, error) {
	var i Input
	if err := jsonfile.Read(strings.NewReader(in), "--input", "-", &i); err != nil {
		return "", err
	}
	o, err := Solve(context.Background(), &i)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(o)
	return string(text), err
}

func TestOutputIsContract(t *testing.T) {
	t.Parallel()
	text := testkit.Need(solved(strings.Replace(write(t, trace, `,"load":null`), `"workers":4`, `"workers":40`, 1)))(t)
	var got map[string]json.RawMessage
	testkit.Check(t, json.Unmarshal([]byte(text), &got))
	for key, want := range map[string]string{
		"long": `{"p50":30,"p90":30,"p99":30,"mean":30}`, "tasks": "6", "jobs": "3", "slowdown": `{"short_p99":1,"long_p99":1}`,
	} {
		if string(got[key]) != want {
			t.Errorf("%s is %s, want %s", key, got[key], want)
		}
	}
	if len(got) != 6 || got["short"] == nil || got["util"] == nil {
		t.Errorf("keys of %s", text)
	}
	if text = testkit.Need(solved(write(t, "0 1 1 1\n", "")))(t); !strings.Contains(text, `"long":{"p50":null`) {
		t.Errorf("without long jobs: %s", text)
	}
}

// A load rescales the arrivals: 38 s of work on 4 workers are half of their time in 19 s.
func TestInputScalesLoad(t *testing.T) {
	t.Parallel()
	in := &Input{Trace: "trace", Load: new(0.5)}
	stretch := testkit.Need(in.stretch(strings.NewReader(trace), 4))(t)
	if want := 38.0 / (4 * 4 * 0.5); math.Abs(stretch-want) > 1e-12 {
		t.Errorf("stretched by %v, want %v", stretch, want)
	}
}

func TestInputRefuses(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ file, want string }{
		"syntax":               {"{\n \"policy\": }", "stdin:2:"},
		"unknown key":          {write(t, trace, `,"wieght":3`), `unknown field "wieght"`},
		"policy":               {strings.Replace(write(t, trace, ""), `"pigeon"`, `"dove"`, 1), "unknown policy \"dove\""},
		"no workers":           {strings.Replace(write(t, trace, ""), `"workers":4`, `"workers":0`, 1), "workers is 0: must be from 1"},
		"groups":               {strings.Replace(write(t, trace, ""), `"groups":2`, `"groups":5`, 1), "groups is 5: must be from 1 to 4"},
		"reserved above group": {strings.Replace(write(t, trace, ""), `"reserved":1`, `"reserved":3`, 1), "reserved is 3 per group: must be from 0 to 2, the workers of a group"},
		"all reserved":         {strings.Replace(write(t, trace, ""), `"reserved":1`, `"reserved":2`, 1), "long jobs would never run"},
		"W of 0":               {strings.Replace(write(t, trace, ""), `"w":null`, `"w":0`, 1), "w is 0: must be at least 1, or null for strict priority"},
		"negative hop":         {strings.Replace(write(t, trace, ""), `"hop_s":0`, `"hop_s":-1`, 1), "hop_s is -1: must be from 0"},
		"no cutoff":            {strings.Replace(write(t, trace, ""), `"cutoff_s":5,`, ``, 1), "cutoff_s is missing"},
		"negative cutoff":      {strings.Replace(write(t, trace, ""), `"cutoff_s":5`, `"cutoff_s":-5`, 1), "cutoff_s is -5"},
		"no trace":             {`{"policy":"pigeon","workers":4,"cutoff_s":1}`, "trace is missing"},
		"trace not there":      {`{"policy":"pigeon","workers":4,"cutoff_s":1,"trace":"/nowhere/at all"}`, "trace: open /nowhere/at all"},
		"load":                 {write(t, trace, `,"load":0`), "load is 0: must be above 0"},
		"load without span":    {write(t, "3 1 1 1\n", `,"load":0.5`), "a load needs jobs at different times"},
		"eagle's options":      {write(t, trace, `,"srpt":true`), "srpt and sbp are only for policy eagle"},
		"eagle without short":  {`{"policy":"eagle","workers":4,"cutoff_s":1,"trace":"x"}`, "policy eagle needs at least 1 per group"},
		"placement":            {write(t, trace, `,"placement":"random"`), "must be round-robin or block"},
		"cap of no group":      {write(t, trace, `,"caps":[{"at_s":0,"group":2}]`), "caps[0].group is 2: must be from 0 to 1"},
		"cap order":            {write(t, trace, `,"caps":[{"at_s":2,"group":0},{"at_s":1,"group":0}]`), "caps[1].at_s is 1: must be at least 2"},
		"cap speed":            {write(t, trace, `,"caps":[{"at_s":2,"group":0,"speed":0}]`), "caps[0].speed is 0: must be above 0"},
		"cap of all":           {write(t, trace, `,"caps":[{"at_s":2,"group":0,"usable":1}]`), "its long tasks would never run"},
		"fan-out 0":            {write(t, "0 1 1 1\n1 0 1\n", ""), "trace.txt:2: number of tasks is \"0\": must be from 1"},
		"negative time":        {write(t, "0 1 1 -1\n", ""), "trace.txt:1: time of task 1 is -1: must be from 0"},
		"times missing":        {write(t, "0 2 1 1\n", ""), "trace.txt:1: 2 tasks, but the times of 1"},
		"arrivals unsorted":    {write(t, "5 1 1 1\n4 1 1 1\n", `,"load":0.5`), "trace.txt:2: arrival 4 is before 5"},
		"empty trace":          {write(t, "", ""), "trace.txt:1: file is empty"},
	} {
		if text, err := solved(x.file); err == nil || text != "" || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// Whatever the file says, reading it ends in a Setup that Run takes, or in an error.
func FuzzInput(f *testing.F) {
	f.Add(`{"policy":"pigeon","workers":4,"groups":2,"reserved":1,"w":3,"cutoff_s":5,"hop_s":0,"distributors":1,"seed":1,"trace":"t"}`)
	f.Add(`{"policy":"eagle","workers":40,"groups":4,"reserved":1,"cutoff_s":1e9,"srpt":true,"trace":"t","load":0.5}`)
	f.Add(`{"policy":"ours","workers":9,"groups":3,"cutoff_s":0,"trace":"t","caps":[{"at_s":1,"group":1,"speed":0.5,"usable":2}]}`)
	f.Add(`{"policy":"sparrow","workers":1e3}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in Input
		if err := jsonfile.Read(strings.NewReader(text), "--input", "-", &in); err != nil {
			return
		}
		s, err := in.setup()
		if err != nil {
			return
		}
		if s.Workers > 500 || s.Distributors > 20 {
			return // it is valid, but slow to try
		}
		jobs := []traces.Job{{Times: []float64{0.5, 3}}, {Arrival: 1, Times: []float64{100}}}
		if _, err := Run(t.Context(), s, sequence(jobs)); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}

// Fig. 4.11: 120 workers in 3 groups, 4 reserved each, strict priority. The reference is the mean of 40 seeds of the public simulators, with Pigeon's
// leak of reserved workers fixed. p50 and p90 are within 15 %, p99 of Pigeon's short jobs within three standard deviations of its seeds.
func TestFigure411(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HEADROOM_TRACES")
	if dir == "" {
		testkit.NotRun(t, "HEADROOM_TRACES names no folder of published traces")
	}
	for _, x := range []struct {
		policy      Policy
		load        string
		short, long [3]float64
	}{
		{Pigeon, "50", [3]float64{0.350, 0.928, 2.52}, [3]float64{171, 212, 256}},
		{Pigeon, "70", [3]float64{0.393, 1.306, 4.32}, [3]float64{189, 240, 279}},
		{Pigeon, "90", [3]float64{0.481, 1.811, 3.76}, [3]float64{199, 256, 291}},
		{Eagle, "50", [3]float64{0.39, 1.88, 6.01}, [3]float64{}},
		{Eagle, "70", [3]float64{0.871, 29.6, 38.1}, [3]float64{}},
		{Eagle, "90", [3]float64{11.8, 52.6, 57.3}, [3]float64{}},
		{Sparrow, "50", [3]float64{0.729, 141, 175}, [3]float64{}},
		{Sparrow, "70", [3]float64{49.5, 170, 201}, [3]float64{}},
		{Sparrow, "90", [3]float64{101, 189, 216}, [3]float64{}},
	} {
		var short, long [3]float64
		const seeds = 5
		for seed := range uint64(seeds) {
			f := testkit.Need(traces.Open(dir, "pigeon-google"+x.load))(t)
			s := Setup{Policy: x.policy, Workers: 120, Groups: 3, Reserved: 4, Cutoff: 1, Hop: HopUsual, Distributors: DistributorsUsual, Seed: seed}
			r := testkit.Need(Run(t.Context(), s, traces.Tasks(f, f.Name())))(t)
			testkit.Check(t, f.Close())
			for i, p := range [3][2]float64{{r.Short.P50, r.Long.P50}, {r.Short.P90, r.Long.P90}, {r.Short.P99, r.Long.P99}} {
				short[i] += p[0] / seeds
				long[i] += p[1] / seeds
			}
		}
		t.Logf("%s %s: short %.3f, long %.1f", x.policy, x.load, short, long)
		for i := range 3 {
			for _, cell := range [2][2]float64{{short[i], x.short[i]}, {long[i], x.long[i]}} {
				if got, want := cell[0], cell[1]; want > 0 && math.Abs(got-want) > 0.15*want {
					t.Errorf("%s %s percentile %d: %v, want %v", x.policy, x.load, i, got, want)
				}
			}
		}
	}
}
