package command

// Claims: what the coordinators have decided about a job, and what they could about a promise at risk, is shown as they say it; what is unknown
// of a group is null.

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func TestShowTellsCandidates(t *testing.T) {
	t.Parallel()
	saved, joules := -20.0, int64(7_500_000)
	resp := &headroomv1.ListResponse{Jobs: []*headroomv1.Job{{
		Id: "words-1", State: headroomv1.JobState_JOB_STATE_RUNNING,
		Outlook: &headroomv1.JobOutlook{Move: &headroomv1.JobMove{
			Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, Reason: "ends in 80 s, 20 s past its deadline",
			Candidates: []*headroomv1.Candidate{
				{Kind: headroomv1.MoveKind_MOVE_KIND_SPRINT, TimeS: &saved, CostUj: &joules, Worth: 61.25, Chosen: true, Why: "saves most"},
				{Kind: headroomv1.MoveKind_MOVE_KIND_COPY, Why: "no straggler"},
			},
		}},
	}}}
	shown := func(format string) string {
		var b bytes.Buffer
		if err := printJob(&b, &cli.Output{Format: format}, resp); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := shown("table")
	for _, want := range []string{"sprint: ends in 80 s, 20 s past its deadline", "sprint, chosen, moves its end by -20 s: saves most", "copy: no straggler"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	var list struct {
		Items []struct{ Move json.RawMessage } `json:"items"`
	}
	if err := json.Unmarshal([]byte(shown("json")), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %+v", err, list)
	}
	var got bytes.Buffer
	if err := json.Compact(&got, list.Items[0].Move); err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"sprint","reason":"ends in 80 s, 20 s past its deadline","candidates":[` +
		`{"kind":"sprint","time_s":-20,"cost_j":7.5,"cost_quality":null,"worth":61.25,"chosen":true,"why":"saves most"},` +
		`{"kind":"copy","time_s":null,"cost_j":null,"cost_quality":null,"worth":0,"chosen":false,"why":"no straggler"}]}`
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

func TestAdmissionForPrograms(t *testing.T) {
	t.Parallel()
	for want, a := range map[string]*headroomv1.Admission{
		`null`: nil,
		`{"decision":"refused","slots":0,"need":null,"free":0,"work_s":null,"confidence":null,"samples":0,"until":null,"finish":null,"nearest_s":null,"reason":"its deadline has passed"}`: {
			Decision: "refused", Reason: "its deadline has passed",
		},
		`{"decision":"queued","slots":2,"need":3,"free":4,"work_s":0,"confidence":0.5,"samples":1,"until":"1970-01-01T00:00:01.5Z","finish":"1970-01-01T00:00:00Z","nearest_s":60.25,"reason":"why"}`: {
			Decision: "queued", Slots: 2, Need: 3, Free: 4, WorkS: new(0.0), Confidence: new(0.5), Samples: 1, UntilUs: new(int64(1_500_000)), FinishUs: new(int64(0)), NearestS: new(60.25), Reason: "why",
		},
	} {
		if got, err := json.Marshal(admissionItem(a)); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestGroupsForPrograms(t *testing.T) {
	t.Parallel()
	var printed, got bytes.Buffer
	testkit.Check(t, printGroups(&printed, &cli.Output{Format: "json"}, []*headroomv1.DispatchGroup{
		{
			Name: "r1", Workers: new(uint32(2)), Slots: new(uint32(8)), Usable: new(uint32(0)), Reserved: new(uint32(1)), RunningHigh: new(uint32(3)), RunningLow: new(uint32(4)),
			WaitingHigh: new(uint32(5)), WaitingLow: new(uint32(6)), Power: new(1.5), Window: 7, Outstanding: 8, Waiting: 9,
			Masters: []*headroomv1.DispatchMaster{{Address: "h:1", Name: "m1", State: "active"}, {Address: "h:2", State: "lost", Trouble: "refused"}},
		},
		{Name: "r2"},
	}))
	testkit.Check(t, json.Compact(&got, printed.Bytes()))
	want := `"items":[{"name":"r1","masters":[{"address":"h:1","name":"m1","state":"active","trouble":""},{"address":"h:2","name":null,"state":"lost","trouble":"refused"}],` +
		`"workers":2,"slots":8,"usable":0,"reserved":1,"running_high":3,"running_low":4,"waiting_high":5,"waiting_low":6,"power":1.5,"window":7,"outstanding":8,"waiting":9},` +
		`{"name":"r2","masters":[],"workers":null,"slots":null,"usable":null,"reserved":null,"running_high":null,"running_low":null,"waiting_high":null,"waiting_low":null,` +
		`"power":null,"window":0,"outstanding":0,"waiting":0}]`
	if !strings.Contains(got.String(), want) {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}
