// Claims: what is unknown of a job is null and a dash, never 0; what is known is in
// the JSON, the list and the page of a job; a policy's name tells what it divides,
// and one that names both says which was meant.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// told is a job of which everything is known.
func told() *headroomv1.Job {
	return &headroomv1.Job{
		Id: "job_1", Name: "wc", Class: "q2", State: headroomv1.JobState_JOB_STATE_RUNNING, Engine: "yarn", Queue: "root.q2", Floor: 0.75, UncappedS: new(100.0),
		Progress: &headroomv1.JobProgress{
			Tasks: 40, Done: 20, Running: 5, Dropped: 3, RatePerS: new(0.5), RuntimeS: new(60.0), Containers: 6, Phase: headroomv1.JobPhase_JOB_PHASE_MAP,
			RunningOn: map[string]uint32{"n01": 5},
		},
		Stop:    &headroomv1.EarlyStop{Tasks: 40, MinTasks: 30, Reason: "it is late", AtUs: 1_700_000_000_000_000},
		Dropped: []*headroomv1.TaskRange{{First: 36, Last: 36}, {First: 38, Last: 39}},
		Outlook: &headroomv1.JobOutlook{
			FinishS: new(125.0), FinishLowS: new(110.0), FinishHighS: new(140.0), CapShare: new(0.62), MinTasks: 30, AimTasks: 34, Containers: new(uint32(9)),
			Policy: "stretch", Why: "capped at 155 W of 250 W", UncappedLowS: new(90.0), UncappedHighS: new(112.0),
		},
	}
}

func TestJobsAreShown(t *testing.T) {
	t.Parallel()
	bare := &headroomv1.Job{Id: "job_2", State: headroomv1.JobState_JOB_STATE_QUEUED, Engine: "local", Floor: 1}
	early := told()
	early.Outlook.FinishS = new(90.0)
	data, err := json.Marshal(jobItems([]*headroomv1.Job{told(), bare, early}))
	if err != nil {
		t.Fatal(err)
	}
	var items []map[string]any
	if err := json.Unmarshal(data, &items); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"engine": "yarn", "queue": "root.q2", "phase": "map", "floor": "0.75", "min_tasks": "30", "aim_tasks": "34", "finish_s": "125", "finish_low_s": "110",
		"finish_high_s": "140", "uncapped_s": "100", "uncapped_low_s": "90", "uncapped_high_s": "112", "stretch": "0.25", "cap_share": "0.62", "containers": "6", "containers_given": "9", "policy": "stretch",
		"stop":          "map[at:2023-11-14T22:13:20Z min_tasks:30 reason:it is late tasks:40]",
		"dropped_tasks": "[map[first:36 last:36] map[first:38 last:39]]", "why": "capped at 155 W of 250 W", "dropped": "3",
	} {
		if got := fmt.Sprint(items[0][field]); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	for _, unknown := range []string{
		"queue", "phase", "min_tasks", "aim_tasks", "finish_s", "finish_low_s", "finish_high_s", "uncapped_s", "uncapped_low_s", "uncapped_high_s", "stretch", "cap_share", "containers",
		"containers_given", "policy", "stop", "why", "dropped",
	} {
		if got, there := items[1][unknown]; !there || got != nil {
			t.Errorf("unknown %s is %v, there: %v", unknown, got, there)
		}
	}
	if items[2]["stretch"] != 0.0 {
		t.Errorf("a job that ends early has a stretch of %v", items[2]["stretch"])
	}
	text := jobText(told())
	for _, line := range []string{
		"engine     yarn, queue root.q2, phase map", "floor      30 (75 %) of its map tasks", "finish     125 s (110 to 140 s in 9 of 10 cases), uncapped 100 s (90 to 112 s), stretch 25 %",
		"containers 6/9 by policy stretch, cap 62 % of full power", "why        capped at 155 W of 250 W", "stop       at 30 of 40 tasks: it is late", "dropped    tasks 36, 38-39",
	} {
		if !strings.Contains(text, "  "+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	var table bytes.Buffer
	o := &operator{}
	if err := o.jobTable(&table, []*headroomv1.Job{told(), bare}); err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(table.String(), "\n")
	if got := strings.Fields(rows[1]); strings.Join(got[8:16], " ") != "62 % 125 s 100 s 30 (75" {
		t.Errorf("row %q", rows[1])
	}
	if got := strings.Join(strings.Fields(rows[2]), " "); got != "job_2 - - queued - - - - - - - 100 % - - -" {
		t.Errorf("row %q", got)
	}
}

// The floor is what the job was promised, not what is left of it by its drop ratio; one without a hook can lose no task.
func TestFloorIsShown(t *testing.T) {
	t.Parallel()
	j := &headroomv1.Job{Floor: 0.75, Progress: &headroomv1.JobProgress{Tasks: 8}, Outlook: &headroomv1.JobOutlook{MinTasks: 8}}
	if got := shownFloor(j); got != "6 (75 %)" {
		t.Errorf("%q", got)
	}
	j = &headroomv1.Job{Floor: 0.5, Progress: &headroomv1.JobProgress{Tasks: 12, Whole: true}}
	if got := shownFloor(j); got != "12 (100 %)" {
		t.Errorf("%q", got)
	}
}

// How an ended job kept its deadline is told after its end, with the reasons.
func TestVerdictIsShown(t *testing.T) {
	t.Parallel()
	j := told()
	j.State, j.End = headroomv1.JobState_JOB_STATE_DONE, &headroomv1.JobEnd{EndedUs: 1_700_000_000_000_000, Verdict: "missed", LateS: new(12.0), Why: "waited 5.0 s and ran 67.0 s"}
	if text := jobText(j); !strings.Contains(text, "  deadline   missed by 12.0s: waited 5.0 s and ran 67.0 s\n") {
		t.Error(text)
	}
	if text := shownPromise(j); !strings.HasPrefix(text, "missed by 12.0s") {
		t.Error(text)
	}
}

// What was foreseen of a job that is done is told with its errors, or as unknown.
func TestEstimateErrorsAreShown(t *testing.T) {
	t.Parallel()
	done := told()
	done.State, done.Outlook = headroomv1.JobState_JOB_STATE_DONE, nil
	unknown := jobItems([]*headroomv1.Job{done})[0].Errors
	if text := jobText(done); unknown != nil || !strings.Contains(text, "  estimates  -\n") {
		t.Errorf("unknown errors are %v, and in\n%s", unknown, text)
	}
	if text := jobText(told()); strings.Contains(text, "estimates") {
		t.Errorf("errors of a job that runs:\n%s", text)
	}
	done.EstimateErrors = []*headroomv1.EstimateError{{Policy: "learned", MeanError: 0.0288, Samples: 12}, {Policy: "paper", MeanError: 0.098, Samples: 12}}
	if text := jobText(done); !strings.Contains(text, "  estimates  off by 2.9 % (learned), 9.8 % (paper) over 12 looks\n") {
		t.Error(text)
	}
	data, err := json.Marshal(jobItems([]*headroomv1.Job{done})[0].Errors)
	if want := `[{"policy":"learned","mean_error":0.0288,"samples":12},{"policy":"paper","mean_error":0.098,"samples":12}]`; err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
}

// moving is a job that sprints and was deflated.
func moving() *headroomv1.Job {
	j := told()
	j.Rank, j.DeadlineS, j.Deflation = 1, new(600.0), &headroomv1.Deflation{Theta: 0.2, Seed: 7, Reason: "class q2"}
	j.Progress.SprintAfterS, j.Progress.SprintDue = new(65.0), true
	j.Outlook.Move = &headroomv1.JobMove{
		Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, Reason: "its sprint timer is due", AtUs: 1_700_000_000_000_000, CostUj: new(int64(7_500_000_000)), TimeS: new(-60.0),
		Refused: "nobody answers",
	}
	return j
}

// The move in force is told with its cost and its answer, by show and by explain, with what
// decided it and what was done before; what is unknown is null and a dash.
func TestMovesAreShown(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(jobItems([]*headroomv1.Job{moving(), told()}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"rank":1,"deadline_s":600,"deflation":{"theta":0.2,"seed":7,"reason":"class q2"},"move":{"kind":"sprint","reason":"its sprint timer is due",` +
			`"at":"2023-11-14T22:13:20Z","cost_j":7500,"cost_quality":null,"time_s":-60,"acknowledged":false,"refused":"nobody answers","candidates":[]}`,
		`"rank":0,"deadline_s":null,"deflation":null,"move":null,"admission":null,"error_bound":null,"promised":null,"copies":0,"copies_wanted":0,"copies_save_s":null,"wasted_s":0,"scaling":null,"ended_at":null,"verdict":null,"missed_by_s":null,"verdict_why":null}`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
	text := jobText(moving())
	for _, line := range []string{
		"deadline   10m", "deflation  drop ratio 0.2 by seed 7: class q2", "sprint     1m05s after its dispatch, due", ": its sprint timer is due\n", "move       sprint since ",
		"cost       7.50 kJ, -60 s; refused: nobody answers",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	quality := &headroomv1.JobMove{Kind: headroomv1.MoveKind_MOVE_KIND_DEFLATE, CostQuality: new(0.15), Acknowledged: true, Reason: "it is late"}
	r := &headroomv1.ExplainJobResponse{Meta: &headroomv1.Meta{}, Job: moving(), Moves: []*headroomv1.JobMove{quality, moving().GetOutlook().GetMove()}}
	sprints := &headroomv1.ListSprintsResponse{
		Sprints: []*headroomv1.SprintRecord{{Id: "s9", Job: "another"}, {Id: "job/job_1/1", Job: "job_1", State: "open", Domain: "site/lab", EscrowUj: 7_500_000_000}},
		Domains: []*headroomv1.Domain{{Name: "site/lab", Sprint: &headroomv1.SprintBudget{
			CapacityUj: 20_000_000_000, Pots: []*headroomv1.SprintPot{{Class: "q2", Share: 0.5, BalanceUj: 900_000_000}, {Class: "q1", Share: 0.5}},
		}}},
	}
	item := explained(r, sprints)
	if len(item.Moves) != 2 || item.Sprint == nil || item.Sprint.ID != "job/job_1/1" || len(item.Inputs.Budgets) != 1 || *item.Inputs.Theta != 0.2 || *item.Inputs.SprintAfterS != 65 || !item.Inputs.SprintDue {
		t.Errorf("%+v", item)
	}
	var out bytes.Buffer
	o := &operator{}
	if err := o.explainJobText(&out, r, &item); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"class q2, rank 1, running", "decided by drop ratio 0.2, sprint timer 65 s, floor 30 (75 %), cap 62 % of full power, 0.90 kJ of 10.00 kJ to sprint with in site/lab",
		"sprints    job/job_1/1, open, 7.50 kJ put aside by site/lab", "deflate  15 % of its tasks  acknowledged", "it is late",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	waits := &headroomv1.Job{Id: "j", State: headroomv1.JobState_JOB_STATE_QUEUED, Floor: 1, Progress: &headroomv1.JobProgress{Place: 3}}
	out.Reset()
	r = &headroomv1.ExplainJobResponse{Job: waits}
	item = explained(r, &headroomv1.ListSprintsResponse{})
	if err := o.explainJobText(&out, r, &item); err != nil || !strings.Contains(out.String(), "move       -: it waits, as number 3 of its buffer") || !strings.Contains(out.String(), "no joules to sprint with") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// hurried is a job with a promise that is at risk.
func hurried() *headroomv1.Job {
	j := told()
	j.DeadlineS = new(120.0)
	j.Admission = &headroomv1.Admission{
		Decision: "admitted", Slots: 8, Need: 7, Free: 12, WorkS: new(640.0), Confidence: new(0.9), Samples: 31, FinishUs: new(int64(1_700_000_000_000_000)),
		Reason: "8 of 12 free slots do its work in 80 s",
	}
	p := j.GetProgress()
	p.Error, p.Promised, p.Copies, p.CopiesWanted, p.CopiesSaveS, p.WastedS = new(0.05), 8, 2, 3, new(12.5), 41
	j.Outlook.Move = &headroomv1.JobMove{
		Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, Reason: "it would be late", CostUj: new(int64(7_500_000_000)), Acknowledged: true,
		Candidates: []*headroomv1.Candidate{
			{Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, TimeS: new(-20.0), CostUj: new(int64(7_500_000_000)), Worth: 61.25, Chosen: true, Why: "it saves most for each joule"},
			{Kind: headroomv1.MoveKind_MOVE_KIND_COPY, TimeS: new(-12.5), Worth: 3.5, Why: "3 copies would take more than they save"},
			{Kind: headroomv1.MoveKind_MOVE_KIND_CAP, Why: "no other node has watts to give"},
			{Kind: headroomv1.MoveKind_MOVE_KIND_DEFLATE, TimeS: new(-1.5), CostQuality: new(0.025), Worth: -7, Why: "a task less saves 2 weighted seconds and costs 9"},
		},
	}
	return j
}

// What was promised is told by list, show and explain; explain tells what could be done while it is at risk.
func TestPromisesAreShown(t *testing.T) {
	t.Parallel()
	j := hurried()
	data, err := json.Marshal(jobItems([]*headroomv1.Job{j}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"admission":{"decision":"admitted","slots":8,"need":7,"free":12,"work_s":640,"confidence":0.9,"samples":31,"until":null,"finish":"2023-11-14T22:13:20Z",` +
			`"reason":"8 of 12 free slots do its work in 80 s"},"error_bound":0.05,"promised":8,"copies":2,"copies_wanted":3,"copies_save_s":12.5,"wasted_s":41,"scaling":null,"ended_at":null,"verdict":null,"missed_by_s":null,"verdict_why":null}`,
		`"candidates":[{"kind":"sprint","time_s":-20,"cost_j":7500,"cost_quality":null,"worth":61.25,"chosen":true,"why":"it saves most for each joule"},`,
		`{"kind":"cap","time_s":null,"cost_j":null,"cost_quality":null,"worth":0,"chosen":false,"why":"no other node has watts to give"}`,
		`{"kind":"deflate","time_s":-1.5,"cost_j":null,"cost_quality":0.025,"worth":-7,"chosen":false,`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
	text := jobText(j)
	for _, line := range []string{
		"  admission  admitted with 8 containers, to end at ", ": 8 of 12 free slots do its work in 80 s\n", "  promised   8 containers\n",
		"  error      it ends once all but 5 % of its map tasks are done\n", "  copies     2 run, 3 more are wanted, which would save 12 s\n", "  wasted     41 container seconds\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	o, out := &operator{}, bytes.Buffer{}
	if err := o.jobTable(&out, []*headroomv1.Job{j}); err != nil || !strings.Contains(out.String(), "8 containers, error 5 %, 2 copies") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	r := &headroomv1.ExplainJobResponse{Meta: &headroomv1.Meta{}, Job: j}
	item := explained(r, &headroomv1.ListSprintsResponse{})
	if err := o.explainJobText(&out, r, &item); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\n\n")
	want := `its deadline is at risk; what could be done, by the weighted seconds that it saves:
LEVER    CHOSEN  END    COST                WORTH  WHY
sprint   yes     -20 s  7.50 kJ             61.2   it saves most for each joule
copy     no      -12 s  -                   3.5    3 copies would take more than they save
cap      no      -      -                   0      no other node has watts to give
deflate  no      -2 s   2.5 % of its tasks  -7     a task less saves 2 weighted seconds and costs 9

`
	if table != want {
		t.Errorf("explain tells\n%s\nwant\n%s", table, want)
	}
}

func TestPolicyNames(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, of, want, note string
	}{
		{"progress", "", "watts", ""},
		{"weighted", "", "watts", ""},
		{"stretch", "", "containers", ""},
		{"paper", "", "containers", ""},
		{"equal", "", "watts", "--for containers"},
		{"equal", "containers", "containers", ""},
		{"equal", "watts", "watts", ""},
		{"nonsense", "", "watts", ""},
		{"stretch", "watts", "watts", ""},
	} {
		cmd, stderr := &cobra.Command{}, &bytes.Buffer{}
		cmd.SetErr(stderr)
		got, err := policyFor(cmd, x.name, x.of)
		if err != nil || got != x.want || (stderr.Len() > 0) != (x.note != "") || !strings.Contains(stderr.String(), x.note) {
			t.Errorf("%s for %q: %s, %v, says %q", x.name, x.of, got, err, stderr)
		}
	}
	_, err := policyFor(&cobra.Command{}, "equal", "joules")
	if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage {
		t.Errorf("--for joules: %v", err)
	}
}
