// Claims: `powerlab solve dispatch` prints the exact contract; a mistake in the file or the trace is exit code 2 with its place
// and the rule.
package solve_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/solve"
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

func TestCommandPrintsContract(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), strings.Replace(write(t, trace, `,"load":null`), `"workers":4`, `"workers":40`, 1), "dispatch", "--input", "-", "-o", "json")
	if exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	var got map[string]json.RawMessage
	testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
	for key, want := range map[string]string{
		"long": `{"mean":30,"p50":30,"p90":30,"p99":30}`, "tasks": "6", "jobs": "3", "slowdown": `{"long_p99":1,"short_p99":1}`,
	} {
		var compact json.RawMessage = []byte(strings.Join(strings.Fields(string(got[key])), ""))
		if string(compact) != want {
			t.Errorf("%s is %s, want %s", key, compact, want)
		}
	}
	if len(got) != 6 || got["short"] == nil || got["util"] == nil {
		t.Errorf("keys of %s", stdout)
	}
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ file, want string }{
		"syntax":               {"{\n \"policy\": }", "stdin:2:"},
		"unknown key":          {write(t, trace, `,"wieght":3`), `unknown field "wieght"`},
		"policy":               {strings.Replace(write(t, trace, ""), `"pigeon"`, `"dove"`, 1), "unknown policy \"dove\""},
		"no workers":           {strings.Replace(write(t, trace, ""), `"workers":4`, `"workers":0`, 1), "workers is 0: must be from 1"},
		"groups":               {strings.Replace(write(t, trace, ""), `"groups":2`, `"groups":5`, 1), "groups is 5: must be from 1 to 4"},
		"reserved above group": {strings.Replace(write(t, trace, ""), `"reserved":1`, `"reserved":3`, 1), "reserved is 3 per group: must be from 0 to 2, the workers of a group"},
		"all reserved":         {strings.Replace(write(t, trace, ""), `"reserved":1`, `"reserved":2`, 1), "long jobs would never run"},
		"W of 0":               {strings.Replace(write(t, trace, ""), `"w":null`, `"w":0`, 1), "w is 0: must be from 1"},
		"negative hop":         {strings.Replace(write(t, trace, ""), `"hop_s":0`, `"hop_s":-1`, 1), "hop_s is -1: must be from 0"},
		"no cutoff":            {strings.Replace(write(t, trace, ""), `"cutoff_s":5,`, ``, 1), "cutoff_s is missing"},
		"negative cutoff":      {strings.Replace(write(t, trace, ""), `"cutoff_s":5`, `"cutoff_s":-5`, 1), "cutoff_s is -5"},
		"no trace":             {`{"policy":"pigeon","workers":4,"cutoff_s":1}`, "trace is missing"},
		"trace not there":      {`{"policy":"pigeon","workers":4,"cutoff_s":1,"trace":"/nowhere/at all"}`, "trace: open /nowhere/at all"},
		"load":                 {write(t, trace, `,"load":0`), "load is 0: must be above 0"},
		"load without span":    {write(t, "3 1 1 1\n", `,"load":0.5`), "a load needs jobs at different times"},
		"eagle's options":      {write(t, trace, `,"srpt":true`), "srpt and sbp are only for policy eagle"},
		"eagle without short":  {strings.NewReplacer(`"pigeon"`, `"eagle"`, `"reserved":1`, `"reserved":0`).Replace(write(t, trace, "")), "policy eagle needs at least 1 per group"},
		"placement":            {write(t, trace, `,"placement":"random"`), "must be round-robin or block"},
		"cap of no group":      {write(t, trace, `,"caps":[{"at_s":0,"group":2}]`), "caps[0].group is 2: must be from 0 to 1"},
		"cap order":            {write(t, trace, `,"caps":[{"at_s":2,"group":0},{"at_s":1,"group":0}]`), "caps[1].at_s is 1: must be at least 2"},
		"cap speed":            {write(t, trace, `,"caps":[{"at_s":2,"group":0,"speed":0}]`), "caps[0].speed is 0: must be above 0"},
		"cap of all":           {write(t, trace, `,"caps":[{"at_s":2,"group":0,"usable":1}]`), "its long tasks would never run"},
		"fan-out 0":            {write(t, "0 1 1 1\n1 0 1\n", ""), "trace.txt:2: number of tasks is \"0\": must be from 1"},
		"negative time":        {write(t, "0 1 1 -1\n", ""), `trace.txt:1: time of task 1 is "-1": must be from 0`},
		"times missing":        {write(t, "0 2 1 1\n", ""), "trace.txt:1: 2 tasks, but the times of 1"},
		"arrivals unsorted":    {write(t, "5 1 1 1\n4 1 1 1\n", `,"load":0.5`), "trace.txt:2: arrival 4 is before 5"},
		"empty trace":          {write(t, "", ""), "trace.txt:1: file is empty"},
	} {
		exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), x.file, "dispatch", "--input", "-")
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, x.want) {
			t.Errorf("%s: exit %d, %q, want %q", name, exit, stderr, x.want)
		}
	}
}
