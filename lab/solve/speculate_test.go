// Claims: `powerlab solve speculate` prints the exact contract, with the paper's examples; a mistake in the file is exit
// code 2 with its place; no file makes it panic.
package solve_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/solve"
)

// fig1 is Fig. 1 of the paper when T2 ends, fig2 has the outcome of its Fig. 2.
const (
	fig1 = `"slots":1,"now_s":1,"tasks":[{"id":"T9","state":"waiting","t_new_s":3},{"id":"T1","state":"running","t_rem_s":5,"t_new_s":2,"copies":1},` +
		`{"id":"T2","state":"done"},{"id":"T4","state":"waiting","t_new_s":1},{"id":"T3","state":"waiting","t_new_s":1}]}`
	fig2 = `"slots":1,"now_s":5,"tasks":[{"id":1,"state":"running","t_rem_s":1,"t_new_s":2},{"id":2,"state":"done"},` +
		`{"id":3,"state":"running","t_rem_s":3,"t_new_s":2},{"id":4,"state":"waiting","t_new_s":3},{"id":5,"state":"waiting","t_new_s":3},{"id":6,"state":"waiting","t_new_s":3}]}`
)

// speculate is the answer without spaces.
func speculate(t *testing.T, file string) (exit int, answer, stderr string) {
	t.Helper()
	exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), file, "speculate", "--input", "-", "-o", "json")
	return exit, strings.Join(strings.Fields(stdout), ""), stderr
}

func TestSpeculate(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		`{"policy":"gs","bound":{"deadline_s":6},` + fig1:                                                            `{"actions":[{"action":"launch","task":"T3"}]}`,
		`{"policy":"ras","bound":{"deadline_s":6},` + fig1:                                                           `{"actions":[{"action":"copy","task":"T1"}]}`,
		`{"policy":"grass","bound":{"deadline_s":2},` + fig1:                                                         `{"actions":[{"action":"launch","task":"T3"}],"greedy":true}`,
		`{"policy":"strawman","bound":{"deadline_s":9},` + fig1:                                                      `{"actions":[{"action":"copy","task":"T1"}],"greedy":false}`,
		`{"policy":"oracle","bound":{"deadline_s":2},` + fig1:                                                        `{"actions":[{"action":"launch","task":"T3"}]}`,
		`{"policy":"gs","bound":{"deadline_s":1},` + fig1:                                                            `{"actions":[{"action":"wait"}]}`,
		`{"policy":"gs","bound":{"error":0.4},` + fig2:                                                               `{"actions":[{"action":"copy","task":3}]}`,
		`{"policy":"ras","bound":{"error":0.2},` + fig2:                                                              `{"actions":[{"action":"launch","task":4}]}`,
		`{"policy":"late","bound":{"error":0},` + fig2:                                                               `{"actions":[{"action":"launch","task":4}]}`,
		`{"policy":"gs","bound":{"error":1},` + fig2:                                                                 `{"actions":[{"action":"wait"}]}`,
		`{"policy":"gs","bound":{"error":0.4},"greedy":false,"slots":0,"now_s":0,"tasks":[{"id":1,"state":"done"}]}`: `{"actions":[]}`,
		`{"policy":"ours","bound":{"deadline_s":7},"slots":2,"slot_speeds":[0.2,1],"now_s":0,"tasks":[{"id":1,"state":"running","t_rem_s":3,"t_new_s":3,"speed":0.3,"speed_measured":1},{"id":2,"state":"waiting","t_new_s":3},{"id":3,"state":"waiting","t_new_s":3}],"width":1}`: `{"actions":[{"action":"copy","slot":1,"task":1},{"action":"launch","slot":0,"task":2}],"greedy":false}`,
	} {
		if exit, got, stderr := speculate(t, file); exit != 0 || got != want {
			t.Errorf("%.50s: exit %d, %s%s\nwant %s", file, exit, got, stderr, want)
		}
	}
}

// example is a job of the paper at one decision after another: what each policy answers there.
type example struct {
	name, policy, bound string
	// steps are the file after the bound, and the action.
	steps [][2]string
}

// examples are the decisions of Fig. 1, of Fig. 2's outcome and of the introduction, each to its end.
// The tasks that end between two decisions are those that the answer before started.
func examples() []example {
	job := func(now, t1 string, started ...string) string {
		tasks := []string{t1, `{"id":2,"state":"done"}`}
		for i, s := range started {
			tasks = append(tasks, strings.ReplaceAll(s, "ID", strconv.Itoa(i+3)))
		}
		return `"slots":1,"now_s":` + now + `,"tasks":[` + strings.Join(tasks, ",") + `]}`
	}
	const (
		ended = `{"id":ID,"state":"done"}`
		one   = `{"id":ID,"state":"waiting","t_new_s":1}`
		three = `{"id":ID,"state":"waiting","t_new_s":3}`
		t1    = `{"id":1,"state":"done"}`
	)
	// T1 runs alone until 6, or a copy ends it at 3.
	t1left := func(left string) string {
		return `{"id":1,"state":"running","t_rem_s":` + left + `,"t_new_s":2,"copies":1}`
	}
	fig1 := func(now, first string, done int) string {
		var tasks []string
		for i := range 6 {
			tasks = append(tasks, one)
			if i < done {
				tasks[i] = ended
			}
		}
		return job(now, first, append(tasks, three)...)
	}
	launch := func(id int) string { return fmt.Sprintf(`{"action":"launch","task":%d}`, id) }
	copied := func(id int) string { return fmt.Sprintf(`{"action":"copy","task":%d}`, id) }
	const wait = `{"action":"wait"}`
	fig2 := func(now, first, third, fourth string) string {
		return `"slots":1,"now_s":` + now + `,"tasks":[` + first + `,{"id":2,"state":"done"},` + third + `,` + fourth + `,` +
			`{"id":5,"state":"waiting","t_new_s":3},{"id":6,"state":"waiting","t_new_s":3}]}`
	}
	const (
		f1, f1done = `{"id":1,"state":"running","t_rem_s":1,"t_new_s":2}`, `{"id":1,"state":"done"}`
		f3, f4     = `{"id":3,"state":"running","t_rem_s":3,"t_new_s":2}`, `{"id":4,"state":"waiting","t_new_s":3}`
		// A second later.
		copy3, run3, run4 = `{"id":3,"state":"running","t_rem_s":1,"t_new_s":2,"copies":2}`, `{"id":3,"state":"running","t_rem_s":2,"t_new_s":2}`, `{"id":4,"state":"running","t_rem_s":2,"t_new_s":3}`
	)
	intro := `"slots":1,"now_s":0,"tasks":[{"id":1,"state":"running","t_rem_s":5,"t_new_s":4},{"id":2,"state":"waiting","t_new_s":5}]}`
	return []example{
		// Done by 6: T2 to T7, and T1, which ends by itself: 7.
		{"Fig. 1, 6 s", "gs", `{"deadline_s":6}`, [][2]string{
			{fig1("1", t1left("5"), 0), launch(3)},
			{fig1("2", t1left("4"), 1), launch(4)},
			{fig1("3", t1left("3"), 2), launch(5)},
			{fig1("4", t1left("2"), 3), launch(6)},
			{fig1("5", t1left("1"), 4), launch(7)},
		}},
		// The copy ends T1 at 3, which frees two slots: T3 to T8 end by 6, and with T1 and T2 that is 8.
		{"Fig. 1, 6 s", "ras", `{"deadline_s":6}`, [][2]string{
			{fig1("1", t1left("5"), 0), copied(1)},
			{strings.Replace(fig1("3", t1, 0), `"slots":1`, `"slots":2`, 1), launch(3) + "," + launch(4)},
			{strings.Replace(fig1("4", t1, 2), `"slots":1`, `"slots":2`, 1), launch(5) + "," + launch(6)},
			{strings.Replace(fig1("5", t1, 4), `"slots":1`, `"slots":2`, 1), launch(7) + "," + launch(8)},
		}},
		// Done by 3: T2 to T4, against T1 and T2 of RAS.
		{"Fig. 1, 3 s", "gs", `{"deadline_s":3}`, [][2]string{
			{fig1("1", t1left("5"), 0), launch(3)}, {fig1("2", t1left("4"), 1), launch(4)}, {fig1("3", t1left("3"), 2), wait},
		}},
		{"Fig. 1, 3 s", "ras", `{"deadline_s":3}`, [][2]string{{fig1("1", t1left("5"), 0), copied(1)}, {fig1("3", t1, 0), wait}}},
		{"introduction", "gs", `{"deadline_s":10}`, [][2]string{{intro, copied(1)}}},
		{"introduction", "ras", `{"deadline_s":10}`, [][2]string{{intro, launch(2)}}},
		// T1 ends at 6. GS has 3 tasks at 7, RAS 4 at 8.
		{"Fig. 2, 3 tasks", "gs", `{"error":0.4}`, [][2]string{{fig2("5", f1, f3, f4), copied(3)}, {fig2("6", f1done, copy3, f4), launch(4)}}},
		{"Fig. 2, 4 tasks", "gs", `{"error":0.2}`, [][2]string{{fig2("5", f1, f3, f4), copied(3)}, {fig2("6", f1done, copy3, f4), launch(4)}}},
		{"Fig. 2, 3 tasks", "ras", `{"error":0.4}`, [][2]string{{fig2("5", f1, f3, f4), launch(4)}}},
		{"Fig. 2, 4 tasks", "ras", `{"error":0.2}`, [][2]string{{fig2("5", f1, f3, f4), launch(4)}, {fig2("6", f1done, run3, run4), launch(5)}}},
	}
}

func TestSpeculateExamples(t *testing.T) {
	t.Parallel()
	for _, e := range examples() {
		for i, step := range e.steps {
			file := `{"policy":"` + e.policy + `","bound":` + e.bound + `,` + step[0]
			if exit, got, stderr := speculate(t, file); exit != 0 || got != `{"actions":[`+step[1]+`]}` {
				t.Errorf("%s by %s, decision %d: exit %d, %s%s\nwant %s", e.name, e.policy, i+1, exit, got, stderr, step[1])
			}
		}
	}
}

// wrong are files with one mistake each, and the error that it must give.
func wrong() map[string]string {
	task := `"slots":1,"now_s":5,"tasks":[{"id":1,"state":"waiting","t_new_s":1}]}`
	return map[string]string{
		"{\"policy\":\"gs\",\n \"slots\":}":                                                                                      "stdin:2:",
		`{"policy":"best","bound":{"error":0},` + task:                                                                           `policy "best"; want one of`,
		`{"policy":"gs","bound":{"deadline_s":4},` + task:                                                                        "deadline_s 4 is before now_s 5",
		`{"policy":"gs","bound":{"error":1.5},` + task:                                                                           "error is 1.5",
		`{"policy":"gs","bound":{},` + task:                                                                                      "either deadline_s or error",
		`{"policy":"gs","bound":{"error":0,"deadline_s":9},` + task:                                                              "either deadline_s or error",
		`{"policy":"gs","bound":{"error":0,"rounding":"up"},` + task:                                                             "rounding",
		`{"policy":"gs","bound":{"deadline_s":1e300},` + task:                                                                    "bound.deadline_s is 1e+300: must be from",
		`{"policy":"gs","bound":{"deadline_s":1e999},` + task:                                                                    "stdin:1:",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[]}`:                                                               "the job has no tasks",
		`{"policy":"gs","bound":{"error":0},"tasks":[{"id":1,"state":"done"}]}`:                                                  "slots is missing",
		`{"policy":"gs","bound":{"error":0},"slots":-1,"tasks":[{"id":1,"state":"done"}]}`:                                       "slots is -1",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"state":"done"}]}`:                                               "tasks[0].id is missing",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1.5,"state":"done"}]}`:                                      "task id 1.5",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":7,"state":"x"}]}`:                                           `tasks[0] (7): unknown state "x"`,
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"done"},{"id":1,"state":"done"}]}`:                "tasks[1]: id 1 is already used by tasks[0]",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting"}]}`:                                     "no task has an estimate",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":0}]}`:                         "t_new_s is 0",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"running","t_rem_s":-1,"t_new_s":1}]}`:            "t_rem_s is -1",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":1e12}]}`:                      "t_new_s is 1e+12",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":1,"copies":2}]}`:              "copies is 2: must be 0",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"running","t_rem_s":1,"t_new_s":1,"copies":-2}]}`: "-2 copies",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"x"}],` + task:                                               "samples[0]: policy",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"gs"}],` + task:                                              "samples[0]: needs either",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"gs","needed":-1}],` + task:                                  "samples[0]: size -1",
	}
}

func TestSpeculateRefuses(t *testing.T) {
	t.Parallel()
	for file, want := range wrong() {
		exit, stdout, stderr := testkit.Run(t, solve.NewCommand(), file, "speculate", "--input", "-")
		if exit != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nhint: ") {
			t.Errorf("%s: exit %d, %q, want %q", file, exit, stderr, want)
		}
	}
}

func FuzzSpeculate(f *testing.F) {
	for file := range wrong() {
		f.Add(file)
	}
	for _, policy := range []string{"gs", "ras", "grass", "strawman", "late", "mantri", "none", "oracle", "ours"} {
		f.Add(`{"policy":"` + policy + `","bound":{"deadline_s":6},` + fig1)
		f.Add(`{"policy":"` + policy + `","bound":{"error":0.3},` + fig2)
	}
	f.Fuzz(func(t *testing.T, file string) {
		exit, stdout, stderr := speculate(t, file)
		if exit == 0 && !strings.HasPrefix(stdout, `{"actions":[`) || exit != 0 && (exit != cli.ExitUsage || stdout != "" || stderr == "") {
			t.Errorf("exit %d, %q, %q", exit, stdout, stderr)
		}
	})
}
