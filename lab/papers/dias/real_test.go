// Claims: a real run is judged on what the policies are for, and one that kills where it
// must not, or drops and sprints without effect, is judged short; unknown joules are unknown;
// a job counts from its submission to its end, in its last run; without the programs
// nothing starts.
package dias

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/arbiter"
	"headroom/jobs/buffers"
	"headroom/lab/cluster"
	"headroom/lab/papers"
	"headroom/lab/report"
	"headroom/lab/spark"
	"headroom/ledger"
	"headroom/progress"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
	"headroom/units"
)

// realTimes are results in which a high and a low job take these seconds by policy.
func realTimes(times map[buffers.Discipline][4]float64) realResults {
	var all realResults
	for _, d := range realPolicies() {
		x, joules := times[d], 1000.0
		r := realResult{program: graphProgram, round: 1, policy: d, total: 100, jobs: []realEnded{
			{class: high, response: x[0], exec: x[1], runs: 1, joules: new(joules), wrong: new(0.)}, {class: low, response: x[2], exec: x[3], runs: 1, joules: new(joules), wrong: new(0.)},
		}}
		if d == buffers.P {
			r.killed, r.jobs[1].runs = 5, 2
		}
		if d == buffers.NPS || d == buffers.DIAS {
			r.jobs[0].sprints, r.jobs[0].spent = 1, 300
		}
		if d == buffers.DA || d == buffers.DIAS {
			r.jobs[1].theta, r.jobs[1].wrong = 0.2, new(4.)
		}
		all = append(all, r)
	}
	return all
}

func asMeant() map[buffers.Discipline][4]float64 {
	return map[buffers.Discipline][4]float64{
		buffers.P: {6, 5, 20, 5}, buffers.NP: {9, 5, 15, 5}, buffers.DA: {8, 5, 11, 4}, buffers.NPS: {6, 3, 13, 5}, buffers.DIAS: {5, 3, 9, 4},
	}
}

// short are the ids of the targets that fall short.
func (r realRounds) short() string {
	var ids []string
	for _, t := range r.targets("", "graph", graphPower) {
		if t.Verdict == report.Short {
			ids = append(ids, t.ID)
		}
	}
	return strings.Join(ids, " ")
}

// Each mistake makes its targets short, and no other; what is not measured is short too, and
// a part that was not run is not run.
func TestRealTargets(t *testing.T) {
	t.Parallel()
	if got := (realRounds{realTimes(asMeant())}).short(); got != "" {
		t.Errorf("as meant, short are %q", got)
	}
	for _, m := range realMutants() {
		r := realTimes(asMeant())
		m.spoil(r)
		if got, want := (realRounds{r}).short(), strings.Join(m.expected, " "); got != want {
			t.Errorf("%s: short are %q, want %q", m.name, got, want)
		}
	}
	r := realTimes(asMeant())
	r.of(buffers.DIAS).jobs[0].joules = nil
	if got := (realRounds{r}).short(); got != "7" {
		t.Errorf("joules are unknown: short are %q", got)
	}
	r = realTimes(asMeant())
	r.of(buffers.P).jobs[1].runs = 1 // but machine time of killed runs
	if got := (realRounds{r}).short(); got != "1" {
		t.Errorf("waste without kills: short are %q", got)
	}
	for _, x := range (realRounds{}).targets("", "graph", graphPower) {
		if x.Verdict != report.NotRun {
			t.Errorf("without a run, %s is %s", x.ID, x.Verdict)
		}
	}
	r = realTimes(asMeant())
	for i := range r {
		for k := range r[i].jobs {
			r[i].jobs[k].wrong = nil
		}
	}
	if got := (realRounds{r}).targets("", "graph", graphPower); got[len(got)-1].Verdict != report.NotRun {
		t.Errorf("errors that nobody asked for: %+v", got[len(got)-1])
	}
}

// One run has no bounds and the verdict order at best; of several, a figure is met where it
// holds within the bounds over the runs, and order where it holds in the mean alone. No sprint
// is said aloud.
func TestRealBounds(t *testing.T) {
	t.Parallel()
	verdict := func(r realRounds, id string) report.Target {
		all := r.targets("", "graph", graphPower)
		return all[slices.IndexFunc(all, func(t report.Target) bool { return t.ID == id })]
	}
	one := realTimes(asMeant())
	if got := verdict(realRounds{one}, "6"); got.Verdict != report.Order || !strings.Contains(got.Note, "no bounds") {
		t.Errorf("one run: %+v", got)
	}
	if got := verdict(realRounds{one, realTimes(asMeant())}, "6"); got.Verdict != report.Met {
		t.Errorf("two alike: %+v", got)
	}
	other := realTimes(asMeant())
	other.of(buffers.DIAS).jobs[1].response = 19
	if got := verdict(realRounds{one, other}, "6"); got.Verdict != report.Order || *got.High < 0 {
		t.Errorf("two that differ: %+v", got)
	}
	for i := range one {
		one[i].jobs[0].sprints = 0
	}
	if got := verdict(realRounds{one}, "5"); got.Verdict != report.Short || !strings.Contains(got.Note, "NO SPRINT WAS SEEN") {
		t.Errorf("no sprint: %+v", got)
	}
}

// runs.csv is read as it was written, and a run that was cut short is left out.
func TestRunsAreReadAgain(t *testing.T) {
	t.Parallel()
	r := realTimes(asMeant())
	r[0].jobs[0].joules, r[0].jobs[1].wrong = nil, nil
	var out bytes.Buffer
	cut := r[1]
	cut.round = 2
	testkit.Check(t, writeRuns(&out, append(slices.Clone(r), cut)))
	text := out.String()
	got := testkit.Need(readRuns(&out))(t)
	if len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Errorf("read %+v\nwrote %+v", got, r)
	}
	for _, bad := range []string{"", "policy,job\n", strings.Replace(text, ",high,", ",middle,", 1), strings.Replace(text, "6.00000", "six", 1)} {
		if _, err := readRuns(strings.NewReader(bad)); !errors.Is(err, errRecord) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

// The table has a row for every job, and no number where nobody measured.
func TestRealTable(t *testing.T) {
	t.Parallel()
	r := realTimes(asMeant())
	r[0].jobs[0].joules = nil
	var out bytes.Buffer
	testkit.Check(t, writeRuns(&out, r))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || lines[1] != "p,0,high,6.00000,5.00000,1,0.00000,false,,graph,1,0,0.00000,0.00000,5.00000,100.00000" || !strings.Contains(lines[2], ",2,0.00000,false,1000.00000,graph,") {
		t.Errorf("%q", lines)
	}
}

// A job that was killed counts from its submission, and its execution from its last run on.
func TestRealLook(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &watch{
		result: &realResult{jobs: make([]realEnded, 1)}, index: map[string]int{"words-1": 0},
		submitted: []time.Time{now.Add(-20 * time.Second)}, began: make([]time.Time, 1), ended: make([]bool, 1),
	}
	jobs := []arrival{{"j0", 0, low}}
	at := func(run uint32, began time.Duration, state headroomv1.JobState) *headroomv1.ListResponse {
		return &headroomv1.ListResponse{
			Jobs:     []*headroomv1.Job{{Id: "words-1", State: state, Progress: &headroomv1.JobProgress{Run: run, Theta: new(0.2)}}, {Id: "another"}},
			Runs:     []*headroomv1.RunDetail{{Id: "words-1", BeganUs: now.Add(-began).UnixMicro()}},
			Dispatch: &headroomv1.Dispatch{KilledS: 3, TotalS: 8},
		}
	}
	w.look(jobs, at(1, 15*time.Second, headroomv1.JobState_JOB_STATE_RUNNING))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_RUNNING))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_DONE))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_DONE))
	e := w.result.jobs[0]
	if w.done != 1 || w.failed != nil || e.runs != 2 || e.theta != 0.2 || e.class != low || w.result.killed != 3 {
		t.Errorf("%+v, %d done, %v", e, w.done, w.failed)
	}
	if e.response < 20 || e.exec < 5 || e.response-e.exec < 14.99 || e.response-e.exec > 15.01 {
		t.Errorf("response %v s, execution %v s", e.response, e.exec)
	}
	w.ended[0] = false
	w.look(jobs, at(2, 0, headroomv1.JobState_JOB_STATE_FAILED))
	if w.failed == nil {
		t.Error("a failed job is no error")
	}
}

// Sprints are those of the policy's jobs, with what they drew, once all of them are over.
func TestRealSprints(t *testing.T) {
	t.Parallel()
	w := newWatch(buffers.NPS, 2)
	w.index = map[string]int{"a": 0, "b": 1}
	records := []*headroomv1.SprintRecord{
		{Job: "a", State: "closed", SpentUj: 2_000_000}, {Job: "a", State: "ending", SpentUj: 1_000_000}, {Job: "of another", State: "open", SpentUj: 9_000_000},
	}
	if w.sprints(records) {
		t.Error("over, while one is ending")
	}
	records[1].State = "closed"
	if !w.sprints(records) || w.result.jobs[0].sprints != 2 || w.result.jobs[0].spent != 3 || w.result.jobs[1].sprints != 0 || w.result.sprints() != 1 {
		t.Errorf("%+v", w.result.jobs)
	}
	if got := w.result.spent(); got.Mean != 1.5 {
		t.Errorf("%+v joules a sprint", got)
	}
}

// All policies get the same jobs, of both classes, and the programs are asked for first.
func TestRealNeedsPrograms(t *testing.T) {
	t.Parallel()
	a, b := realTrace(1, realJobs), realTrace(1, realJobs)
	classes := map[int]int{}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("job %d differs: %v, %v", i, a[i], b[i])
		}
		classes[a[i].class]++
	}
	if classes[high] < 2 || classes[low] < 2 {
		t.Errorf("jobs by class: %v", classes)
	}
	_, err := command(t, "--engine", "local", "--bin", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "coordinator") {
		t.Errorf("%v", err)
	}
	if _, err := command(t, "--engine", "abacus"); err == nil || !strings.Contains(err.Error(), "abacus") {
		t.Errorf("%v", err)
	}
}

// byRatio are jobs of all ratios: times fall and errors rise as they are meant to.
func byRatio() []ratioPoint {
	var points []ratioPoint
	for i, percent := range realRatios() {
		points = append(points, ratioPoint{percent: percent, kept: realMaps, exec: 5 - float64(i), error: 4 * float64(i)})
	}
	return points
}

func TestRatioTargets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(p []ratioPoint) []ratioPoint
		short string
	}{
		"as meant":           {func(p []ratioPoint) []ratioPoint { return p }, ""},
		"not run":            {func([]ratioPoint) []ratioPoint { return nil }, ""},
		"one takes longer":   {func(p []ratioPoint) []ratioPoint { p[2].exec = 6; return p }, "L8"},
		"hardly quicker":     {func(p []ratioPoint) []ratioPoint { p[4].exec = 4; return p }, "L8"},
		"errors do not rise": {func(p []ratioPoint) []ratioPoint { p[3].error = 1; return p }, "L9"},
		"exact is not exact": {func(p []ratioPoint) []ratioPoint { p[0].error = 1; return p }, "L9"},
	} {
		var ids []string
		for _, x := range wordCurve(c.spoil(byRatio())).targets() {
			if x.Verdict == report.Short {
				ids = append(ids, x.ID)
			}
		}
		if got := strings.Join(ids, " "); got != c.short {
			t.Errorf("%s: short are %q, want %q", name, got, c.short)
		}
	}
}

// The error is the mean part by which scaled counts are off; results are summed over the
// tasks that ran, and what is no result is an error.
func TestDeviation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		testkit.WriteFile(t, filepath.Join(dir, name), text)
	}
	if _, _, err := counted(dir); err == nil {
		t.Error("a folder without results counts as one")
	}
	write("map-00000", "a\t6\nb\t2\n")
	write("map-00002", "a\t4\n")
	write("job.json", "{}")
	counts, tasks, err := counted(dir)
	if err != nil || tasks != 2 || counts["a"] != 10 || counts["b"] != 2 {
		t.Fatalf("%v of %d tasks, %v", counts, tasks, err)
	}
	if got := deviation(map[string]float64{"a": 16, "b": 8}, counts, 2); math.Abs(got-(0.25+0.5)/2) > 1e-12 {
		t.Errorf("error %v, want 0.375", got)
	}
	write("map-00003", "nonsense\n")
	if _, _, err := counted(dir); err == nil {
		t.Error("nonsense counts as a result")
	}
}

// Few jobs are of both classes all the same, and every seed has its own times.
func TestSparkTrace(t *testing.T) {
	t.Parallel()
	jobs, again, others := sparkTrace(1, sparkJobs, sparkGap), sparkTrace(1, sparkJobs, sparkGap), sparkTrace(2, sparkJobs, sparkGap)
	classes, before := map[int]int{}, time.Duration(0)
	for i := range jobs {
		if jobs[i] != again[i] || jobs[i].at == others[i].at || jobs[i].at <= before {
			t.Errorf("job %d: %v, again %v, with another seed %v", i, jobs[i], again[i], others[i])
		}
		classes[jobs[i].class]++
		before = jobs[i].at
	}
	if classes[high] != 2 || classes[low] != 4 {
		t.Errorf("jobs by class: %v", classes)
	}
}

// A job file is one that the scheduler takes, whose class may drop what its policy is to drop
// and no more.
func TestSparkSpec(t *testing.T) {
	t.Parallel()
	r := &sparkRun{realRun: &realRun{Real: &papers.Real{Folder: "/opt/head room", Dir: "/tmp/run"}, jobs: []arrival{{class: low}, {class: high}}}}
	r.engine = r.graphs()
	if f := testkit.Need(jobfile.Parse("/tmp/run/graph.yaml", r.job(0), []string{"high", "low"}))(t); f.Spark == nil || f.Spark.Conf["spark.headroom.stages"] != "all" || f.MinTasks != "80%" {
		t.Errorf("the triangle count: %+v", f.Spark)
	}
	r.engine = r.popularities()
	for i, want := range []struct{ class, least string }{{"low", "80%"}, {"high", "100%"}} {
		f := testkit.Need(jobfile.Parse("/tmp/run/words.yaml", r.job(i), []string{"high", "low"}))(t)
		if f.Class != want.class || f.MinTasks != want.least || f.Slots != realNodes*sparkCores {
			t.Errorf("%+v, want %+v", f, want)
		}
		if s := f.Spark; s == nil || s.Application != "/opt/head room/headroom-spark-apps.jar" || s.Main == "" || !slices.Equal(s.Args[:2], []string{"/tmp/run/Posts.xml", strconv.Itoa(partitions)}) {
			t.Errorf("%+v", s)
		}
	}
}

// The scheduler's configuration holds policy and Spark, with the nodes' names by their hosts.
func TestSparkSection(t *testing.T) {
	t.Parallel()
	text := "dev: true\nlisten: \"127.0.0.1:0\"\ndir: /tmp/s\ncoordinators: [\"127.0.0.1:1\"]\n" + configuration(buffers.DIAS, sparkSprintAfter) +
		spark.Section{
			Home: "/opt/spark", Master: "spark://127.1.2.254:7077", Web: "http://127.1.2.254:4711", Plugin: "/opt/hook.jar", ConfDir: "/tmp/con f",
			Hosts: map[string]string{"127.1.2.2": "n2", "127.1.2.1": "n1"},
		}.String()
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, text)
	c := testkit.Need(scheduler.LoadConfig(path))(t)
	if s := c.Spark; !s.On() || s.Nodes["127.1.2.1"] != "n1" || len(s.Nodes) != 2 || len(s.Web) != 1 || !slices.Contains(s.Driver, "SPARK_CONF_DIR=/tmp/con f") || c.Discipline != string(buffers.DIAS) {
		t.Errorf("%+v", c)
	}
}

// Without the hook's jars, which make build does not make, Spark does not start.
func TestSparkNeedsJars(t *testing.T) {
	t.Parallel()
	bin := testkit.Programs(t)
	if _, err := command(t, "--engine", "spark", "--bin", bin); err == nil || !strings.Contains(err.Error(), "headroom-spark.jar") {
		t.Errorf("%v", err)
	}
}

// An answer is the one of the last execution; the error is by how much it misses.
func TestAnswersOfJobs(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		testkit.Check(t, os.WriteFile(filepath.Join(bin, name), nil, 0o600))
	}
	site := testkit.Need(cluster.NewSite(cluster.Config{Dir: t.TempDir(), Bin: bin, Coordinators: 1, Nodes: 1}))(t)
	defer func() { testkit.Check(t, site.Close()) }()
	r := &sparkRun{realRun: &realRun{Real: &papers.Real{Site: site}}, triangles: 200}
	if _, err := r.wrong("count-1", r.missedTriangles); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without an answer: %v", err)
	}
	for run, triangles := range map[string]string{"run-1": "10", "run-9": "20", "run-10": "150"} {
		path := site.Path("scheduler", "jobs", "count-1", run, "stdout")
		testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.WriteFile(t, path, "RESULT {\"triangles\": "+triangles+"}\n")
	}
	if got, err := r.wrong("count-1", r.missedTriangles); got != 25 || err != nil {
		t.Errorf("%v %%, %v", got, err)
	}
}

// What is for Spark alone is refused elsewhere, and numbers have bounds.
func TestQuickIsForSpark(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--engine spark":          {"--quick"},
		"--quick and --runs need": {"--engine", "local", "--runs", "2"},
		"--runs 0: must":          {"--engine", "spark", "--runs", "0"},
		"--real-jobs 2: must":     {"--engine", "spark", "--real-jobs", "2"},
	} {
		if _, err := command(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The container policy of real runs leaves drops, shares, holds and early sprints to nobody
// but the dispatcher: the arbiter grants sprints whose timers are due, and does nothing else,
// where policy joint would give tasks up and divide the cores.
func TestPolicyOfRealRuns(t *testing.T) {
	t.Parallel()
	job := func(id string, rank int, due bool) arbiter.Contender {
		return arbiter.Contender{
			ID: id, Engine: "spark", Rank: rank, Tasks: 50, Running: 4, Pending: 40, Floor: 0.5, Run: 1, On: map[string]int{"n1": 2, "n2": 2}, Due: due, MaySprint: true, MayDeflate: true, Ahead: true,
			Outlook: arbiter.Outlook{Rest: progress.Rest{Known: true, Work: 40, Task: 2 * time.Second, Ended: 6}, Speed: 1.5},
			Offer:   arbiter.Offer{Domain: "site", Balance: 20 * units.Kilojoule, Capacity: 20 * units.Kilojoule, Rise: 100 * units.Watt, Nodes: 2},
		}
	}
	look := arbiter.Look{
		Joint: realContainers == ledger.JointPolicy, Pools: map[string]arbiter.Pool{"spark": {Containers: 4}},
		Jobs: []arbiter.Contender{job("low", 1, false), job("high", 0, true)},
	}
	done := func(look arbiter.Look) (grants []string, others int) {
		var m arbiter.Movers
		for now := range 10 {
			x := m.Step(time.Duration(now)*5*time.Second, look)
			for _, g := range x.Grants {
				grants = append(grants, g.ID)
			}
			others += len(x.Deflates) + len(x.Holds) + len(x.Divisions) + len(x.Ends)
		}
		return slices.Compact(grants), others
	}
	if grants, others := done(look); !slices.Equal(grants, []string{"high"}) || others != 0 {
		t.Errorf("under %q: sprints of %v, %d other decisions", realContainers, grants, others)
	}
	look.Jobs[1].Due = false
	if grants, _ := done(look); len(grants) != 0 {
		t.Errorf("before the timer: sprints of %v", grants)
	}
	look.Joint = true
	if _, others := done(look); others == 0 {
		t.Error("policy joint decides nothing here: the test shows nothing")
	}
}
