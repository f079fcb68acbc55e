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
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/lab/report"
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

// madeUp is a set of two jobs in two pairs alike: 100 s without a cap, capped as said, ours as given.
func madeUp(cappedSeconds int, mine ...realEnd) *realResults {
	r := &realResults{set: 3, quality: 80, cap: 0.5, jobs: []realJob{{name: "a", queue: 1, floor: 1}, {name: "b", queue: 3, floor: 0.5}}}
	r.add(0, 100, cappedSeconds, mine...)
	r.add(1, 100, cappedSeconds, mine...)
	return r
}

// add adds a pair of runs, in the order in which it is made.
func (r *realResults) add(pair, uncappedSeconds, cappedSeconds int, mine ...realEnd) {
	both := func(seconds int) []realEnd { return []realEnd{endOf(seconds, 10, 0, 0), endOf(seconds, 10, 0, 0)} }
	ends := map[string][]realEnd{uncapped: both(uncappedSeconds), capped: both(cappedSeconds), ours: mine}
	for _, v := range abba(pair, realVariants(false, false)) {
		r.runs = append(r.runs, realVariantRun{
			variant: v, pair: pair, ended: ends[v.name], masters: []string{"n1", "n2"}, least: 0.5, most: 0.51, burn: 400 * time.Millisecond,
		})
	}
}

// run is the run of a variant in a pair.
func (r *realResults) run(pair int, variant string) *realVariantRun {
	return r.pairs()[pair].by(variant)
}

func byID(r *realResults) map[string]report.Target {
	found := map[string]report.Target{}
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
				if got[id].Verdict == report.Met {
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
	for pair := range 2 {
		run := r.run(pair, capped)
		for i := range 4 {
			at := time.Duration(6*(i+1)) * time.Second
			p := &headroomv1.JobProgress{
				Tasks: 10, Done: uint32(i), Work: new(float64(i + 1)), RuntimeS: new(at.Seconds()), Pending: 5, Containers: 3, Phase: headroomv1.JobPhase_JOB_PHASE_MAP,
			}
			run.looks = append(run.looks, realLookAt{
				at: realStart.Add(at), since: at, job: 0, is: &headroomv1.Job{Progress: p, Outlook: &headroomv1.JobOutlook{FinishS: new(90.), CapShare: new(0.5)}},
			})
		}
	}
	y3 := byID(r)["Y3"]
	if y3.Got == nil || y3.Verdict != report.Met || !strings.Contains(y3.Note, "ours 10.0 %") {
		t.Errorf("%+v", y3)
	}
	if y3 := byID(madeUp(100, endOf(100, 10, 0, 0), endOf(100, 10, 0, 0)))["Y3"]; y3.Got != nil || y3.Verdict != report.Short || !strings.Contains(y3.Note, "not measured") {
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
		if x := byID(r)[id]; x.Verdict != report.NotRun || !strings.Contains(x.Note, "--steps") {
			t.Errorf("%s without the run: %+v", id, x)
		}
	}
	// 100 tasks: 2 a second for 20 s, then 1 a second: over at 80 s, and mapped 5 s before the end.
	v := realVariants(false, true)
	for pair := range 2 {
		run := realVariantRun{
			variant: v[len(v)-1], pair: pair, ended: []realEnd{endOf(85, 10, 0, 0), endOf(85, 10, 0, 0)}, steps: []time.Duration{5 * time.Second, 20 * time.Second},
		}
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
	}
	filter := byID(r)["D10/yarn"]
	if filter.Got == nil || *filter.Got > 0.6 || filter.Verdict != report.Met || !strings.Contains(filter.Note, "8 looks") {
		t.Errorf("%+v", filter)
	}
	learned := byID(r)["D10/yarn-learned"]
	if learned.Got == nil || *learned.Got > 0.9 || learned.Verdict != report.Met {
		t.Errorf("%+v", learned)
	}
	// The mutants: estimators that are blind to power are no better than blind ones.
	honest := []report.Target{filter, learned}
	for id, blind := range map[string]blindness{"D10/yarn": {filter: true}, "D10/yarn-learned": {learned: true}} {
		r.blind = blind
		mutated := byID(r)
		if fell := fell(honest, []report.Target{mutated["D10/yarn"], mutated["D10/yarn-learned"]}); !slices.Equal(fell, []string{id}) {
			t.Errorf("%+v breaks %v, want %s", blind, fell, id)
		}
	}
}

// Every second pair runs in the opposite order, and each variant stands once in each.
func TestPairsAlternate(t *testing.T) {
	t.Parallel()
	names := func(pair int) (all []string) {
		for _, v := range abba(pair, realVariants(false, false)) {
			all = append(all, v.name)
		}
		return all
	}
	want := []string{uncapped, capped, ours}
	back := []string{ours, capped, uncapped}
	for pair, order := range [][]string{want, back, want, back} {
		if got := names(pair); !slices.Equal(got, order) {
			t.Errorf("pair %d: %v", pair, got)
		}
	}
}

// A run's slowness that all variants of a pair share goes out of the figure; what differs
// from pair to pair widens the bounds.
func TestPairsAreJudged(t *testing.T) {
	t.Parallel()
	steady := &realResults{jobs: []realJob{{name: "a", queue: 1}, {name: "b", queue: 1}}}
	steady.add(0, 100, 200, endOf(150, 10, 0, 0), endOf(150, 10, 0, 0))
	steady.add(1, 300, 600, endOf(450, 10, 0, 0), endOf(450, 10, 0, 0)) // three times as slow
	y1 := byID(steady)["Y1"]
	if y1.Verdict != report.Met || y1.Low == nil || *y1.Low < 45 || *y1.High > 55 {
		t.Errorf("%+v", y1)
	}
	noisy := &realResults{jobs: steady.jobs}
	noisy.add(0, 100, 200, endOf(120, 10, 0, 0), endOf(120, 10, 0, 0))
	noisy.add(1, 100, 200, endOf(180, 10, 0, 0), endOf(180, 10, 0, 0))
	if y1 := byID(noisy)["Y1"]; y1.Verdict != report.Short || *y1.Got < 45 || *y1.Low > 0 {
		t.Errorf("a mean of half of it, of which nothing is sure: %+v", y1)
	}
	one := &realResults{jobs: steady.jobs}
	one.add(0, 100, 200, endOf(120, 10, 0, 0), endOf(120, 10, 0, 0))
	if y1 := byID(one)["Y1"]; y1.Verdict != report.Order || y1.Low != nil || !strings.Contains(y1.Note, "one pair has no bounds") || !strings.Contains(y1.Note, "pair 1: 80 %") {
		t.Errorf("one pair: %+v", y1)
	}
	worse := &realResults{jobs: steady.jobs}
	worse.add(0, 100, 154, endOf(172, 10, 0, 0), endOf(172, 10, 0, 0))
	if y1 := byID(worse)["Y1"]; y1.Verdict != report.Short || *y1.Got > -33 {
		t.Errorf("a third more impact: %+v", y1)
	}
}

func TestRealVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mean, low float64
		want      report.Verdict
	}{
		{40, 20, report.Met}, {30, 15.1, report.Met}, {40, 15, report.Order}, {29, 25, report.Order}, {40, 0, report.Short}, {-5, -9, report.Short},
	} {
		if got := impactVerdict(report.Stat{Mean: c.mean, Low: c.low, High: 2*c.mean - c.low, Known: true}); got != c.want {
			t.Errorf("%v above %v: %s, want %s", c.mean, c.low, got, c.want)
		}
	}
	if a, b, c := ratioVerdict(true, 0.4), ratioVerdict(false, 0.9), ratioVerdict(false, 1.1); a != report.Met || b != report.Order || c != report.Short {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// The fields of /proc/stat are those of proc(5): idle and iowait are idle, guest is part of user.
func TestCPUTimes(t *testing.T) {
	t.Parallel()
	before := cpuTimes("cpu  100 10 50 800 40 0 0 0 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if before.all != 1000 || before.idle != 840 || before.steal != 0 {
		t.Errorf("%+v", before)
	}
	got := before.until(cpuTimes("cpu  150 10 60 820 50 0 0 10 140 0\n"))
	if got.busy < 0.699 || got.busy > 0.701 || got.steal < 0.099 || got.steal > 0.101 {
		t.Errorf("%+v", got)
	}
	if none := before.until(before); none != (hostUse{}) || cpuTimes("") != (cpuTime{}) {
		t.Errorf("no time: %+v", none)
	}
	if took := burn(); took <= 0 {
		t.Errorf("burnt in %v", took)
	}
}

// Variants begin once every node holds its part of the budget, not when the sum is right.
func TestCapsAreAlike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		caps []float64
		want bool
	}{
		{[]float64{0.57, 0.57, 0.575}, true}, {[]float64{0.5, 0.57, 0.64}, false}, {[]float64{0.57, 0.57}, false}, {nil, false},
	} {
		if got := alike(c.caps, 3, 0.57); got != c.want {
			t.Errorf("%v: %v", c.caps, got)
		}
	}
}

// The tables have a row for each run with what the machine did beside it, and the chart can be drawn.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	r := madeUp(200, endOf(150, 10, 0, 0), endOf(110, 5, 5, 5))
	text := map[string]string{}
	for name, write := range r.files() {
		var b strings.Builder
		testkit.Check(t, write(&b))
		text[name] = b.String()
	}
	if rows := strings.Split(strings.TrimSpace(text["pairs.csv"]), "\n"); len(rows) != 7 || !strings.HasPrefix(rows[3], "1,"+ours+",150.00000,1.50000,") || !strings.HasSuffix(rows[4], ",n1 n2") {
		t.Errorf("pairs.csv: %s", text["pairs.csv"])
	}
	if rows := strings.Count(text["runs.csv"], "\n"); rows != 1+2*3*3 {
		t.Errorf("runs.csv has %d rows", rows)
	}
	if !strings.Contains(text["pairs.svg"], "<svg") {
		t.Error("pairs.svg is no picture")
	}
}

// fell are the ids of the targets whose verdicts are worse.
func fell(honest, mutated []report.Target) (ids []string) {
	for i := range honest {
		if at := slices.IndexFunc(mutated, func(t report.Target) bool { return t.ID == honest[i].ID }); at >= 0 && mutated[at].Verdict.Worse(honest[i].Verdict) {
			ids = append(ids, honest[i].ID)
		}
	}
	return ids
}
