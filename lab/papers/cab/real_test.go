// Claims: a real run is judged by what YARN and the jobs' own counters say: how much of
// the cap's impact goes away; floors kept in every variant, with counters that agree with
// the log; errors of finish times. What was not measured is said, not counted.
package cab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/hadoop"
	"headroom/lab/papers"
)

// realStart is when all made-up jobs are submitted.
var realStart = time.Unix(1_700_000_000, 0)

// endOf is a job that has done some of its ten maps and ended after so many seconds.
func endOf(seconds, done, dropped, recorded int) realEnd {
	h := &hadoop.History{Counters: hadoop.Counters{"headroom.hadoop.EarlyStopCounter": {"DROPPED_TASKS": int64(dropped)}}}
	for i := range done {
		at := realStart.Add(time.Duration(seconds-5) * time.Second)
		h.Attempts = append(h.Attempts,
			hadoop.Attempt{ID: fmt.Sprintf("attempt_1_0001_m_%06d_0", i), Kind: "MAP", Status: "SUCCEEDED", Started: realStart, Finished: at},
			hadoop.Attempt{ID: fmt.Sprintf("attempt_1_0001_m_%06d_1", i), Kind: "MAP", Status: "SUCCEEDED", Started: realStart, Finished: at}) // a copy
	}
	e := realEnd{committed: &headroomv1.Job{Progress: &headroomv1.JobProgress{Tasks: 10}}}
	e.result = hadoop.Result{Started: realStart, Finished: realStart.Add(time.Duration(seconds) * time.Second), FinalStatus: "SUCCEEDED", History: h}
	if recorded > 0 {
		e.committed.Dropped = []*headroomv1.TaskRange{{First: uint32(10 - recorded), Last: 9}}
	}
	return e
}

// madeUp is a set of two jobs: 100 s without a cap, capped as said, ours as given.
func madeUp(cappedSeconds int, mine ...realEnd) *realResults {
	r := &realResults{set: 3, quality: 80, cap: 0.5, jobs: []realJob{{name: "a", queue: 1, floor: 1}, {name: "b", queue: 3, floor: 0.5}}}
	v := realVariants(false, false)
	r.runs = []realVariantRun{
		{variant: v[0], ended: []realEnd{endOf(100, 10, 0, 0), endOf(100, 10, 0, 0)}},
		{variant: v[1], ended: []realEnd{endOf(cappedSeconds, 10, 0, 0), endOf(cappedSeconds, 10, 0, 0)}},
		{variant: v[2], ended: mine},
	}
	return r
}

func byID(r *realResults) map[string]papers.Target {
	found := map[string]papers.Target{}
	for _, t := range r.targets() {
		found[t.ID] = t
	}
	return found
}

func TestRealRunIsJudged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		results *realResults
		impact  float64
		met     []string
		says    string // in Y2/b
	}{
		"half of the impact gone":      {madeUp(200, endOf(150, 10, 0, 0), endOf(110, 5, 5, 5)), 50, []string{"Y1", "Y1/jobs", "Y2/a", "Y2/b"}, "stretch 5 of 10 done, 5 needed"},
		"too little of it":             {madeUp(200, endOf(180, 10, 0, 0), endOf(180, 8, 2, 2)), 20, []string{"Y2/a", "Y2/b"}, "8 of 10 done"},
		"a floor broken":               {madeUp(200, endOf(150, 10, 0, 0), endOf(110, 4, 6, 6)), 50, []string{"Y1", "Y1/jobs", "Y2/a"}, "4 of 10 done, 5 needed"},
		"counters against the log":     {madeUp(200, endOf(150, 10, 0, 0), endOf(110, 5, 5, 4)), 50, []string{"Y1", "Y1/jobs", "Y2/a"}, "its counters say 5 dropped, the log 4"},
		"tasks that nobody tells of":   {madeUp(200, endOf(150, 10, 0, 0), endOf(110, 6, 3, 3)), 50, []string{"Y1", "Y1/jobs", "Y2/a"}, "its counters say 3"},
		"a cap that has slowed nobody": {madeUp(101, endOf(100, 10, 0, 0), endOf(100, 10, 0, 0)), -1, []string{"Y2/a", "Y2/b"}, "10 of 10 done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := byID(c.results)
			var met []string
			for _, id := range slices.Sorted(maps.Keys(got)) {
				if got[id].Verdict == papers.Met {
					met = append(met, id)
				}
			}
			if !slices.Equal(met, c.met) {
				t.Errorf("met: %v, want %v", met, c.met)
			}
			y1 := got["Y1"]
			if known := y1.Got != nil; known != (c.impact >= 0) || known && (*y1.Got < c.impact-0.01 || *y1.Got > c.impact+0.01) {
				t.Errorf("Y1 %+v, want %v", y1.Got, c.impact)
			}
			if !strings.Contains(got["Y2/b"].Note, c.says) {
				t.Errorf("Y2/b says %q, want %q", got["Y2/b"].Note, c.says)
			}
		})
	}
}

// The coordinator says 90 s each time, the truth is 100 s of which maps take 95; the
// filter, which saw half of the tasks done in 30 s, says 60 s.
func TestRealEstimatesAreCompared(t *testing.T) {
	t.Parallel()
	r := madeUp(100, endOf(100, 10, 0, 0), endOf(100, 10, 0, 0))
	for i := range 4 {
		at := time.Duration(6*(i+1)) * time.Second
		p := &headroomv1.JobProgress{
			Tasks: 10, Done: uint32(i), Work: new(float64(i + 1)), RuntimeS: new(at.Seconds()), Pending: 5, Containers: 3, Phase: headroomv1.JobPhase_JOB_PHASE_MAP,
		}
		r.runs[1].looks = append(r.runs[1].looks, realLookAt{
			at: realStart.Add(at), since: at, job: 0, is: &headroomv1.Job{Progress: p, Outlook: &headroomv1.JobOutlook{FinishS: new(90.), CapShare: new(0.5)}},
		})
	}
	y3 := byID(r)["Y3"]
	if y3.Got == nil || y3.Verdict != papers.Met || !strings.Contains(y3.Note, "ours 10.0 %") {
		t.Errorf("%+v", y3)
	}
	if y3 := byID(madeUp(100, endOf(100, 10, 0, 0), endOf(100, 10, 0, 0)))["Y3"]; y3.Got != nil || y3.Verdict != papers.Short || !strings.Contains(y3.Note, "not measured") {
		t.Errorf("without looks: %+v", y3)
	}
}

// Every queue of Table I has a twin that guarantees all tasks.
func TestRealQueues(t *testing.T) {
	t.Parallel()
	j := realJob{queue: 2}
	if q, e := realQueue(&j, false), realQueue(&j, true); q != "q2" || e != "e2" {
		t.Errorf("queues %s and %s", q, e)
	}
	for _, v := range realVariants(true, true) {
		if v.exact == (v.name == approx || v.name == ours) {
			t.Errorf("%+v", v)
		}
	}
}

// A budget that steps down twice: the end of a job of constant pace under the last budget
// is foreseen well by the filter that knows the power, and too early by one that does not.
func TestRealStepsAreCompared(t *testing.T) {
	t.Parallel()
	r := madeUp(100, endOf(100, 10, 0, 0), endOf(100, 10, 0, 0))
	for _, id := range []string{"D10/yarn", "D10/yarn-learned"} {
		if x := byID(r)[id]; x.Verdict != papers.NotRun || !strings.Contains(x.Note, "--steps") {
			t.Errorf("%s without the run: %+v", id, x)
		}
	}
	// 100 tasks: 2 a second for 20 s, then 1 a second: over at 80 s, and mapped 5 s before the end.
	v := realVariants(false, true)
	run := realVariantRun{variant: v[len(v)-1], ended: []realEnd{endOf(85, 10, 0, 0), endOf(85, 10, 0, 0)}, steps: []time.Duration{5 * time.Second, 20 * time.Second}}
	for at := 5; at <= 40; at += 5 {
		done, share := 2*at, 1.0
		if at > 20 {
			done, share = 40+at-20, 0.5
		}
		since := time.Duration(at) * time.Second
		p := &headroomv1.JobProgress{
			Tasks: 100, Done: uint32(done), Work: new(float64(done)), RuntimeS: new(float64(at)), Pending: 50, Containers: 11, Phase: headroomv1.JobPhase_JOB_PHASE_MAP,
		}
		run.looks = append(run.looks, realLookAt{at: realStart.Add(since), since: since, is: &headroomv1.Job{Progress: p, Outlook: &headroomv1.JobOutlook{CapShare: new(share)}}})
	}
	r.runs = append(r.runs, run)
	filter := byID(r)["D10/yarn"]
	if filter.Got == nil || *filter.Got > 0.6 || filter.Verdict != papers.Met || !strings.Contains(filter.Note, "4 looks") {
		t.Errorf("%+v", filter)
	}
	if learned := byID(r)["D10/yarn-learned"]; learned.Got == nil {
		t.Errorf("%+v", learned)
	}
}
