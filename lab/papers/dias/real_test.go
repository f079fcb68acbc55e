// Claims: a real run is judged on what the policies are for, and one that kills where it
// must not, or drops and sprints without effect, is judged short; unknown joules are unknown;
// a job counts from its submission to its end, in its last run; without the programs
// nothing starts.
package dias

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/lab/papers"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
)

// realTimes are results in which a high and a low job take these seconds by policy.
func realTimes(times map[buffers.Discipline][4]float64) realResults {
	var all realResults
	for _, d := range realPolicies() {
		x, joules := times[d], 1000.0
		r := realResult{policy: d, total: 100, jobs: []realEnded{
			{class: high, response: x[0], exec: x[1], runs: 1, joules: &joules}, {class: low, response: x[2], exec: x[3], runs: 1, joules: &joules},
		}}
		if d == buffers.P {
			r.killed, r.jobs[1].runs = 5, 2
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
func (r realResults) short() string {
	var ids []string
	for _, t := range r.targets() {
		if t.Verdict == papers.Short {
			ids = append(ids, t.ID)
		}
	}
	return strings.Join(ids, " ")
}

func TestRealTargets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(r realResults)
		short string
	}{
		"as meant":              {func(realResults) {}, ""},
		"np kills":              {func(r realResults) { r.of(buffers.NP).jobs[0].runs = 2 }, "L1"},
		"waste without kills":   {func(r realResults) { r.of(buffers.P).jobs[1].runs = 1 }, "L1"},
		"high jobs go first":    {func(r realResults) { r.of(buffers.NP).jobs[0].response = 5 }, "L2"},
		"nothing is dropped":    {func(r realResults) { r.of(buffers.DA).jobs[1] = r.of(buffers.NP).jobs[1] }, "L4"},
		"drops hurt":            {func(r realResults) { r.of(buffers.DA).jobs[1].response = 16 }, "L3"},
		"nothing sprints":       {func(r realResults) { r.of(buffers.NPS).jobs[0].exec = 5 }, "L5"},
		"low jobs wait as by p": {func(r realResults) { r.of(buffers.DIAS).jobs[1].response = 20 }, "L6"},
		"joules are unknown":    {func(r realResults) { r.of(buffers.DIAS).jobs[0].joules = nil }, "L7"},
		"sprints waste joules":  {func(r realResults) { *r.of(buffers.DIAS).jobs[0].joules = 2000 }, "L7"},
	} {
		r := realTimes(asMeant())
		c.spoil(r)
		if got := r.short(); got != c.short {
			t.Errorf("%s: short are %q, want %q", name, got, c.short)
		}
	}
	if got := (realResults{}).short(); got != "L1 L2 L3 L4 L5 L6 L7" {
		t.Errorf("without a run, short are %q", got)
	}
}

// The table has a row for every job, and no number where nobody measured.
func TestRealTable(t *testing.T) {
	t.Parallel()
	r := realTimes(asMeant())
	r[0].jobs[0].joules = nil
	var out bytes.Buffer
	testkit.Check(t, r.write(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || lines[1] != "p,0,high,6.00000,5.00000,1,0.00000,false," || !strings.HasSuffix(lines[2], ",2,0.00000,false,1000.00000") {
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
			Runs:     []*headroomv1.RunDetail{{Id: "words-1", BeganUs: now.Add(-began).UnixMicro(), Sprint: &headroomv1.Sprinting{}}},
			Dispatch: &headroomv1.Dispatch{KilledS: 3, TotalS: 8},
		}
	}
	w.look(jobs, at(1, 15*time.Second, headroomv1.JobState_JOB_STATE_RUNNING))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_RUNNING))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_DONE))
	w.look(jobs, at(2, 5*time.Second, headroomv1.JobState_JOB_STATE_DONE))
	e := w.result.jobs[0]
	if w.done != 1 || w.failed != nil || e.runs != 2 || e.theta != 0.2 || !e.sprinted || e.class != low || w.result.killed != 3 {
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
		"not run":            {func([]ratioPoint) []ratioPoint { return nil }, "L8 L9"},
		"one takes longer":   {func(p []ratioPoint) []ratioPoint { p[2].exec = 6; return p }, "L8"},
		"hardly quicker":     {func(p []ratioPoint) []ratioPoint { p[4].exec = 4; return p }, "L8"},
		"errors do not rise": {func(p []ratioPoint) []ratioPoint { p[3].error = 1; return p }, "L9"},
		"exact is not exact": {func(p []ratioPoint) []ratioPoint { p[0].error = 1; return p }, "L9"},
	} {
		var ids []string
		for _, x := range ratioTargets(c.spoil(byRatio())) {
			if x.Verdict == papers.Short {
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
	jobs, again, others := sparkTrace(1, sparkJobs), sparkTrace(1, sparkJobs), sparkTrace(2, sparkJobs)
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
	r := &realRun{Real: &papers.Real{Folder: "/opt/head room", Dir: "/tmp/run"}, jobs: []arrival{{class: low}, {class: high}}}
	r.engine.spec = r.sparkSpec
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
		sparkSection("/opt/spark", "spark://127.1.2.254:7077", "/opt/hook.jar", "/tmp/con f", map[string]string{"127.1.2.2": "n2", "127.1.2.1": "n1"})
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	testkit.WriteFile(t, path, text)
	c := testkit.Need(scheduler.LoadConfig(path))(t)
	if s := c.Spark; !s.On() || s.Nodes["127.1.2.1"] != "n1" || len(s.Nodes) != 2 || !slices.Contains(s.Driver, "SPARK_CONF_DIR=/tmp/con f") || c.Discipline != string(buffers.DIAS) {
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
