package cli_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*headroomv1.JobEnd{
		`-{"ended_at":null,"verdict":null,"missed_by_s":null,"verdict_why":null}`:                                        nil,
		`-{"ended_at":"2023-11-14T22:13:20Z","verdict":null,"missed_by_s":null,"verdict_why":null}`:                      {EndedUs: 1_700_000_000_000_000},
		`met{"ended_at":"2023-11-14T22:13:20Z","verdict":"met","missed_by_s":null,"verdict_why":"ran 3.0 s"}`:            {EndedUs: 1_700_000_000_000_000, Verdict: "met", Why: "ran 3.0 s"},
		`missed by 12.0s{"ended_at":"2023-11-14T22:13:20Z","verdict":"missed","missed_by_s":12,"verdict_why":"ran 3 s"}`: {EndedUs: 1_700_000_000_000_000, Verdict: "missed", LateS: new(12.0), Why: "ran 3 s"},
		`missed{"ended_at":"2023-11-14T22:13:20Z","verdict":"missed","missed_by_s":null,"verdict_why":"failed"}`:         {EndedUs: 1_700_000_000_000_000, Verdict: "missed", Why: "failed"},
	} {
		v := cli.VerdictOf(e)
		if text, err := json.Marshal(v); err != nil || v.String()+string(text) != want {
			t.Errorf("%s%s, want %s", v, text, want)
		}
	}
}

func TestJobFilter(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_700_000_000_000_000)
	job := func(id, verdict string, ago time.Duration) *headroomv1.Job {
		return &headroomv1.Job{Id: id, End: &headroomv1.JobEnd{Verdict: verdict, EndedUs: now.Add(-ago).UnixMicro()}}
	}
	all := []*headroomv1.Job{job("old", "missed", 3*time.Hour), job("new", "missed", time.Minute), job("met", "met", time.Minute), job("plain", "", time.Minute), {Id: "runs"}}
	for _, x := range []struct{ args, want []string }{
		{nil, []string{"old", "new", "met", "plain", "runs"}},
		{[]string{"--missed"}, []string{"old", "new"}},
		{[]string{"--missed", "--since", "1h"}, []string{"new"}},
		{[]string{"--since", "1h"}, []string{"new", "met", "plain", "runs"}},
	} {
		var f cli.JobFilter
		cmd := &cobra.Command{Use: "list"}
		f.Flags(cmd)
		if err := cmd.ParseFlags(x.args); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, j := range f.Of(all, now) {
			got = append(got, j.GetId())
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%v: %v, want %v", x.args, got, x.want)
		}
	}
}
