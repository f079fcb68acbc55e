// Claims: `powerlab speculate` prints the exact contract, with the paper's examples; a mistake in the file is exit
// code 2 with its place; no file makes it panic.
package studies_test

import (
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lab/studies"
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
	exit, stdout, stderr := testkit.Run(t, studies.NewSpeculateCommand(), file, "--input", "-", "-o", "json")
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
		`{"policy":"ours","bound":{"deadline_s":7},"slots":2,"slot_speeds":[0.2,1],"now_s":0,"tasks":[{"id":1,"state":"running","t_rem_s":3,"t_new_s":3,"speed":0.3,"speed_measured":1},{"id":2,"state":"waiting","t_new_s":3},{"id":3,"state":"waiting","t_new_s":3}],"width":1}`: `{"actions":[{"action":"copy","task":1,"slot":1},{"action":"launch","task":2,"slot":0}],"greedy":false}`,
	} {
		if exit, got, stderr := speculate(t, file); exit != 0 || got != want {
			t.Errorf("%.50s: exit %d, %s%s\nwant %s", file, exit, got, stderr, want)
		}
	}
	exit, stdout, _ := testkit.Run(t, studies.NewSpeculateCommand(), `{"policy":"gs","bound":{"deadline_s":6},`+fig1, "--input", "-")
	if want := "ACTION  TASK  SLOT\nlaunch  T3\n"; exit != 0 || stdout != want {
		t.Errorf("exit %d:\n%s", exit, stdout)
	}
}

// wrong are files with one mistake each, and what must be said about it.
func wrong() map[string]string {
	task := `"slots":1,"now_s":5,"tasks":[{"id":1,"state":"waiting","t_new_s":1}]}`
	return map[string]string{
		"{\"policy\":\"gs\",\n \"slots\":}":                                                                                      "stdin:2:",
		`{"policy":"best","bound":{"error":0},` + task:                                                                           `policy "best" is none of`,
		`{"policy":"gs","bound":{"deadline_s":4},` + task:                                                                        "deadline_s 4 has passed at now_s 5",
		`{"policy":"gs","bound":{"error":1.5},` + task:                                                                           "error is 1.5; it must be from 0 to 1",
		`{"policy":"gs","bound":{},` + task:                                                                                      "either deadline_s or error",
		`{"policy":"gs","bound":{"error":0,"deadline_s":9},` + task:                                                              "either deadline_s or error",
		`{"policy":"gs","bound":{"error":0,"rounding":"up"},` + task:                                                             "rounding",
		`{"policy":"gs","bound":{"deadline_s":1e300},` + task:                                                                    "must be within",
		`{"policy":"gs","bound":{"deadline_s":1e999},` + task:                                                                    "stdin:1:",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[]}`:                                                               "the job has no tasks",
		`{"policy":"gs","bound":{"error":0},"tasks":[{"id":1,"state":"done"}]}`:                                                  "slots is missing",
		`{"policy":"gs","bound":{"error":0},"slots":-1,"tasks":[{"id":1,"state":"done"}]}`:                                       "slots is -1",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"state":"done"}]}`:                                               "tasks[0]: id is missing",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1.5,"state":"done"}]}`:                                      "a task's id is 1.5",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":7,"state":"x"}]}`:                                           `tasks[0] (7): state "x" is none of`,
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"done"},{"id":1}]}`:                               "tasks[1]: id 1 is that of tasks[0], too",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting"}]}`:                                     "no task has an estimate",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":0}]}`:                         "t_new_s is 0",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"running","t_rem_s":-1,"t_new_s":1}]}`:            "t_rem_s is -1",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":1e12}]}`:                      "t_new_s is 1e+12",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"waiting","t_new_s":1,"copies":2}]}`:              "copies is 2 of a task that waits",
		`{"policy":"gs","bound":{"error":0},"slots":1,"tasks":[{"id":1,"state":"running","t_rem_s":1,"t_new_s":1,"copies":-2}]}`: "-2 copies",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"x"}],` + task:                                               "samples[0]: policy",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"gs"}],` + task:                                              "samples[0]: give either",
		`{"policy":"grass","bound":{"error":0},"samples":[{"policy":"gs","needed":-1}],` + task:                                  "samples[0]: size -1",
	}
}

func TestSpeculateRefuses(t *testing.T) {
	t.Parallel()
	for file, want := range wrong() {
		exit, stdout, stderr := testkit.Run(t, studies.NewSpeculateCommand(), file, "--input", "-")
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
