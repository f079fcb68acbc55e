// Claims: `powerlab solve admit` prints the documented fields with the paper's numbers; a mistake in the file is exit code 2
// with its place; no file makes it panic or print a number that is none.
package solve_test

import (
	"encoding/json"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/lab/solve"
)

// worked are the paper's two jobs.
const worked = `"capacity":100,"jobs":[{"arrival_s":0,"tasks":40,"work_s":1000,"deadline_s":50},{"arrival_s":30,"tasks":7,"work_s":100,"deadline_s":50}]}`

func TestAdmit(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), `{"policy":"pythia",`+worked, "admit", "--input", "-", "-o", "json")
	if exit != 0 || stderr != "" {
		t.Fatalf("exit %d, %s", exit, stderr)
	}
	var got struct {
		Jobs []struct {
			Decision string
			Slots    float64
			Start    float64 `json:"start_s"`
			Finish   float64 `json:"finish_s"`
			Met      bool
		}
		SDR, PTR, Wasted float64
		Fractions        []float64 `json:"cpu_frac"`
	}
	testkit.Check(t, json.Unmarshal([]byte(stdout), &got))
	if len(got.Jobs) != 2 || got.Jobs[0].Slots != 40 || got.Jobs[0].Finish != 25 || got.Jobs[1].Slots != 4 || got.Jobs[1].Start != 30 || got.Jobs[1].Finish != 55 {
		t.Errorf("%+v", got.Jobs)
	}
	if got.SDR != 1 || got.PTR != 1 || got.Wasted != 0 || len(got.Fractions) != 2 || got.Fractions[0] != 0.5 || got.Fractions[1] != 0.5 {
		t.Errorf("%+v", got)
	}
	exit, stdout, _ = testkit.Run(t, solve.NewCommand(), `{"capacity":1,"jobs":[]}`, "admit", "--input", "-", "-o", "json")
	if exit != 0 || !strings.Contains(stdout, `"sdr": null`) || !strings.Contains(stdout, `"cpu_frac": []`) {
		t.Errorf("exit %d: %s", exit, stdout)
	}
}

// A budget in watts cuts the slots: half of the watts above idle, half of the slots.
func TestAdmitPower(t *testing.T) {
	t.Parallel()
	exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), `{"policy":"nodrop","capacity":10,"power":{"idle_w":100,"full_w":300},
		"capacity_changes":[{"at_s":5,"budget_w":200}],"jobs":[{"arrival_s":0,"tasks":10,"work_s":100,"deadline_s":50}]}`, "admit", "--input", "-", "-o", "json")
	if exit != 0 || !strings.Contains(stdout, `"finish_s": 15`) {
		t.Errorf("exit %d: %s%s", exit, stdout, stderr)
	}
}

func TestAdmitRefuses(t *testing.T) {
	t.Parallel()
	one := func(fields string) string { return `{"capacity":9,"jobs":[{` + fields + `}]}` }
	for name, c := range map[string]struct{ in, want string }{
		"policy":      {`{"policy":"best",` + worked, `policy "best"`},
		"no capacity": {`{"jobs":[]}`, "capacity is missing"},
		"capacity":    {`{"capacity":0,"jobs":[]}`, "capacity is 0"},
		"no tasks":    {one(`"arrival_s":0,"tasks":0,"work_s":1,"deadline_s":1`), "jobs[0].tasks is 0"},
		"no work":     {one(`"arrival_s":0,"tasks":1,"deadline_s":1`), "jobs[0].work_s is missing"},
		"zero work":   {one(`"arrival_s":0,"tasks":1,"work_s":0,"deadline_s":1`), "jobs[0].work_s is 0"},
		"past":        {one(`"arrival_s":0,"tasks":1,"work_s":1,"deadline_s":-1`), "jobs[0].deadline_s is -1"},
		"infinite":    {one(`"arrival_s":0,"tasks":1,"work_s":1e999,"deadline_s":1`), "stdin:1:"},
		"huge":        {one(`"arrival_s":1e300,"tasks":1,"work_s":1,"deadline_s":1`), "jobs[0].arrival_s is 1e+300"},
		"back":        {`{"capacity":9,"jobs":[{"arrival_s":2,"tasks":1,"work_s":1,"deadline_s":1},{"arrival_s":1,"tasks":1,"work_s":1,"deadline_s":1}]}`, "jobs[1]: arrival_s is 1, before 2"},
		"both":        {`{"capacity":9,"capacity_changes":[{"at_s":1,"capacity":1,"budget_w":1}],"jobs":[]}`, "capacity_changes[0]: give one of"},
		"no power":    {`{"capacity":9,"capacity_changes":[{"at_s":1,"budget_w":1}],"jobs":[]}`, "budget_w needs power"},
		"unknown":     {`{"capacity":9,"job":[]}`, `unknown field "job"`},
	} {
		if exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), c.in, "admit", "--input", "-"); exit != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %q, want %q", name, exit, stderr, c.want)
		}
	}
}

func FuzzAdmit(f *testing.F) {
	f.Add(`{` + worked)
	f.Add(`{"policy":"reactive","capacity":3,"capacity_changes":[{"at_s":1,"capacity":0}],"jobs":[{"arrival_s":0,"tasks":9,"work_s":1e9,"deadline_s":1e-6}]}`)
	f.Add(`{"policy":"adaptive","capacity":1,"capacity_changes":[{"at_s":0,"capacity":0}],"jobs":[{"arrival_s":1e9,"tasks":1,"work_s":1,"deadline_s":1e9}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), in, "admit", "--input", "-", "-o", "json")
		if exit == 0 && !json.Valid([]byte(stdout)) || exit != 0 && (exit != 2 || stderr == "") {
			t.Errorf("exit %d: %s%s", exit, stdout, stderr)
		}
	})
}
