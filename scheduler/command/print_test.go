package command

// Claims: what the coordinators have decided about a job, and what they could about a promise at risk, is shown as they say it.

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
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
				{Kind: headroomv1.MoveKind_MOVE_KIND_COPY, Why: "no task straggles"},
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
	for _, want := range []string{"sprint: ends in 80 s, 20 s past its deadline", "sprint, chosen, moves its end by -20 s: saves most", "copy: no task straggles"} {
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
		`{"kind":"copy","time_s":null,"cost_j":null,"cost_quality":null,"worth":0,"chosen":false,"why":"no task straggles"}]}`
	if got.String() != want {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}
