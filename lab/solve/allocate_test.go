// Claims: `powerlab solve allocate` prints the exact contract, with the paper's numbers; a
// mistake in the file is exit code 2 with its place.
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

// three are the jobs of the worked example.
const three = `"containers":28,"jobs":[{"name":"a","finish_s":150,"uncapped_finish_s":100,"containers":10},` +
	`{"name":"b","finish_s":120,"uncapped_finish_s":100,"containers":10},{"name":"c","finish_s":95,"uncapped_finish_s":100,"containers":8}]}`

// run is the command with a file on stdin.
func run(t *testing.T, stdin string, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	return testkit.Run(t, solve.NewCommand(), stdin, append([]string{"allocate"}, args...)...)
}

// The paper's shares and the needs of its published code come out, in exactly the
// documented form.
func TestAllocate(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]struct {
		share      []float64
		containers []int
	}{
		"paper":    {[]float64{11.507, 9.205, 7.288}, []int{12, 9, 7}},
		"released": {[]float64{16, 13, 8}, []int{13, 9, 6}},
		"equal":    {[]float64{9.333, 9.333, 9.333}, []int{10, 9, 9}},
	} {
		exit, stdout, stderr := run(t, `{"policy":"`+policy+`",`+three, "--input", "-", "-o", "json")
		if exit != 0 || stderr != "" {
			t.Fatalf("%s: exit %d, %s", policy, exit, stderr)
		}
		var got map[string][]map[string]any
		testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
		for i, job := range got["jobs"] {
			if len(job) != 3 || job["name"] != string(rune('a'+i)) || job["containers"] != float64(want.containers[i]) ||
				math.Abs(job["share"].(float64)-want.share[i]) > 0.0005 {
				t.Errorf("%s: job %d: %v, want %v %v", policy, i, job, want.share[i], want.containers[i])
			}
		}
		if len(got) != 1 || len(got["jobs"]) != 3 {
			t.Errorf("%s: %s", policy, stdout)
		}
	}
}

// A mistake is exit code 2 and names its place.
func TestAllocateRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"syntax":   {"{\"policy\":\"paper\",\n \"containers\":}", "stdin:2:15: "},
		"short":    {`{"policy":"paper"`, "stdin:1:17: it ends too early"},
		"empty":    {``, "it ends too early"},
		"unknown":  {"{\n\"polcy\":\"paper\"}", "stdin:2:1: unknown field \"polcy\""},
		"type":     {`{"containers":"x"}`, "stdin:1:17: containers cannot be a string"},
		"second":   {`{"policy":"paper",` + three + `{}`, "a second document"},
		"policy":   {`{"policy":"best",` + three, `policy "best"`},
		"none":     {`{"containers":0,"jobs":[]}`, "containers is 0"},
		"no name":  {`{"containers":9,"jobs":[{"finish_s":1,"uncapped_finish_s":1}]}`, "jobs[0].name is missing"},
		"half":     {`{"containers":9,"jobs":[{"name":"a","finish_s":1}]}`, `jobs[0] ("a"): finish_s and uncapped_finish_s go together`},
		"negative": {`{"containers":9,"jobs":[{"name":"a","finish_s":-1,"uncapped_finish_s":1}]}`, "finish_s is -1"},
		"zero":     {`{"containers":9,"jobs":[{"name":"a","finish_s":1,"uncapped_finish_s":0}]}`, "uncapped_finish_s is 0"},
		"elapsed":  {`{"containers":9,"jobs":[{"name":"a","elapsed_s":1e30}]}`, "elapsed_s is 1e+30"},
		"held":     {`{"containers":9,"jobs":[{"name":"a","containers":-1}]}`, "jobs[0].containers is -1"},
		"twice":    {`{"containers":9,"jobs":[{"name":"a"},{"name":"a"}]}`, `"a" appears twice`},
		"few":      {`{"containers":2,"jobs":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, "2 containers, but the jobs need at least 3"},
	} {
		exit, stdout, stderr := run(t, c.in, "--input", "-")
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%s: exit %d, %q, want %q", name, exit, stderr, c.want)
		}
	}
	if exit, _, stderr := run(t, "", "--input", "/nowhere/x.json"); exit != cli.ExitUsage || !strings.Contains(stderr, "/nowhere/x.json") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
	if exit, _, stderr := run(t, ""); exit != cli.ExitUsage || !strings.Contains(stderr, "--input is required") {
		t.Errorf("exit %d, %s", exit, stderr)
	}
}

// No jobs is an empty list, and a job of which nothing is known gets its equal share.
func TestAllocateUnknown(t *testing.T) {
	t.Parallel()
	if exit, stdout, _ := run(t, `{"containers":5,"jobs":[]}`, "--input", "-", "-o", "json"); exit != 0 || strings.Join(strings.Fields(stdout), "") != `{"jobs":[]}` {
		t.Errorf("exit %d: %s", exit, stdout)
	}
	if exit, stdout, _ := run(t, `{"containers":6,"jobs":[{"name":"a"},{"name":"b","least":4}]}`, "--input", "-"); exit != 0 || stdout != "jobs:\n- containers: 2\n  name: a\n  share: 3\n- containers: 4\n  name: b\n  share: 3\n" {
		t.Errorf("exit %d: %s", exit, stdout)
	}
}
