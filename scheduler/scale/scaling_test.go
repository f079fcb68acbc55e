// Claims: `scheduler scale fit` prints the documented fields; logs of Spark and histories of MapReduce give the numbers of Table 3.2, and
// the models that they were made of; advice names the degree beyond which watts are wasted; a mistake is exit code 2 with its place; no
// bytes make a reader panic.
package scale

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/jobs/scaling"
	"headroom/jobs/scaling/ipso"
	"headroom/jobs/scaling/usba"
	"headroom/units"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// scale runs the command and returns what it prints as JSON.
func scale(t *testing.T, stdin string, args ...string) *Answer {
	t.Helper()
	exit, stdout, stderr := testkit.Run(t, NewCommand(), stdin, append(args, "-o", "json")...)
	if exit != 0 {
		t.Fatalf("exit %d: %s", exit, stderr)
	}
	var a Answer
	testkit.Check(t, json.Unmarshal([]byte(stdout), &a))
	return &a
}

// Table 2.1's speed-ups.
const table21 = `"points":[{"n":10,"speedup":7.471},{"n":30,"speedup":16.521},{"n":60,"speedup":20.107},{"n":90,"speedup":18.765}]`

func TestFitFile(t *testing.T) {
	t.Parallel()
	a := scale(t, `{"model":"ipso",`+table21+`,"fixed":{"delta":0},"predict":[{"n":60},{"n":200}]}`, "fit", "--input", "-")
	if a.Peak == nil || a.Peak.N < 55 || a.Peak.N > 65 || a.Type == nil || *a.Type != "IV" || a.RMSE > 0.5 || len(a.Predict) != 2 {
		t.Errorf("%+v", a)
	}
	if p := a.Predict[0]; math.Abs(p.Speedup-20.1) > 0.3 || p.Low >= p.Speedup || p.High <= p.Speedup {
		t.Errorf("%+v", p)
	}
	if a.Parameters["delta"].P != nil || a.Parameters["gamma"].P == nil || a.Advice != nil || a.Measurements != nil {
		t.Errorf("%+v", a)
	}
	exit, stdout, _ := testkit.Run(t, NewCommand(), `{"model":"amdahl",`+table21+`}`, "fit", "--input", "-")
	if exit != 0 || !strings.HasPrefix(stdout, "type III,1: bounded by the serial work\nno peak\n") {
		t.Errorf("exit %d: %s", exit, stdout)
	}
}

// A fit's parameters are what a prediction reads.
func TestPredictFile(t *testing.T) {
	t.Parallel()
	a := scale(t, `{"model":"usba","parameters":{"r":0.557,"alpha":{"value":1.58,"low":1,"high":2,"p":null},"beta":0.051,"gamma":-0.006,"eps":0.044,"theta":19.09},
		"predict":[{"n":1,"m":1},{"n":128,"m":32}]}`, "fit", "--input", "-")
	if len(a.Predict) != 2 || math.Abs(a.Predict[0].Speedup-1) > 1e-12 || math.Abs(a.Predict[1].Speedup-26.2) > 1.3 {
		t.Errorf("%+v", a.Predict)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ command, text, want string }{
		{"fit", `{"model":"ipso","points":[],"x":1}`, "stdin:1:29: unknown field"},
		{"fit", `{"model":"law",` + table21 + `}`, "want one of ipso, usba"},
		{"fit", `{"model":"ipso"}`, "points are missing"},
		{"fit", `{"model":"ipso","points":[]}`, "too few points"},
		{"fit", `{"model":"ipso","points":[{"speedup":1}]}`, "points[0]: n is missing"},
		{"fit", `{"model":"ipso","points":[{"n":0,"speedup":1}]}`, "points[0]: n is 0"},
		{"fit", `{"model":"ipso","points":[{"n":1,"m":0,"speedup":1}]}`, "points[0]: m is 0"},
		{"fit", `{"model":"ipso","points":[{"n":2}]}`, "points[0]: speedup is missing"},
		{"fit", `{"model":"ipso","points":[{"n":2,"speedup":-1}]}`, "points[0]: speedup is -1"},
		{"fit", `{"model":"ipso","points":[{"n":2.5,"speedup":1}]}`, "cannot be a number 2.5"},
		{"fit", `{"model":"ipso","points":[{"n":4,"speedup":2},{"n":4,"speedup":2},{"n":4,"speedup":3}]}`, "collinear points: all have n = 4"},
		{"fit", `{"model":"usba","points":[{"n":4,"speedup":2}]}`, "points[0]: m is missing"},
		{"fit", `{"model":"usba","points":[{"n":4,"m":4,"speedup":2},{"n":8,"m":8,"speedup":2},{"n":16,"m":16,"speedup":2}]}`, "too few points"},
		{"fit", `{"model":"ipso",` + table21 + `,"fixed":{"zeta":0}}`, `no parameter "zeta"`},
		{"fit", `{"model":"ipso",` + table21 + `,"predict":[{"n":-1}]}`, "predict[0]: n is -1"},
		{"fit", `{"model":"ipso",` + table21 + `,"predict":[{"n":2,"speedup":1}]}`, "predict[0]: speedup"},
		{"fit", `{"model":"ipso","parameters":{},"predict":[]}`, "parameter eta of ipso is missing"},
		{"fit", `{"model":"ipso","parameters":{"eta":2},"predict":[]}`, "eta is 2"},
		{"fit", `{"model":"ipso","parameters":{"eta":"x"},"predict":[]}`, "must be a number"},
		{"fit", `{"model":"ipso","parameters":{"eta":{"low":1}},"predict":[]}`, "no value"},
		{"fit", `{"model":"usba","parameters":{"r":1},"predict":[{"n":2}]}`, "predict[0]: m is missing"},
		{"fit", `{"model":"usba","parameters":{"r":1,"alpha":-5},"predict":[{"n":64,"m":1}]}`, "predict[0]: the curve has no value"},
		{"fit", ``, "ends too early"},
	} {
		exit, _, stderr := testkit.Run(t, NewCommand(), x.text, x.command, "--input", "-")
		if exit != 2 || !strings.Contains(stderr, x.want) || !strings.Contains(stderr, "hint: ") {
			t.Errorf("%s: exit %d: %s, want %s", x.text, exit, stderr, x.want)
		}
	}
	for _, x := range [][]string{
		{"fit"},
		{"fit", "--input", "a", "--history", "b"},
		{"fit", "--input", "a", "--model", "ipso"},
		{"fit", "--spark-log", "a", "--worth", "0"},
		{"fit", "--spark-log", "a", "--base-power", "3W"},
		{"fit", "--spark-log", "nowhere"},
		{"fit", "--history", "."},
	} {
		if exit, _, stderr := testkit.Run(t, NewCommand(), "", x...); exit != 2 {
			t.Errorf("%v: exit %d: %s", x, exit, stderr)
		}
	}
}

// eventLog is the log of an application whose launch and one stage take as long as a surface says, 10 s each at N = m = 1 for r = 1.
func eventLog(m usba.Model, n, degree int) string {
	var b strings.Builder
	launch := int64(10_000 * m.R * m.Q(float64(degree)))
	stage := int64(10_000 * m.P(float64(n), float64(degree)))
	fmt.Fprintf(&b, `{"Event":"SparkListenerApplicationStart","App Name":"x","App ID":"app-1","Timestamp":1000}`+"\n")
	for i := range degree {
		fmt.Fprintf(&b, `{"Event":"SparkListenerExecutorAdded","Timestamp":1001,"Executor ID":"%d","Executor Info":{"Host":"h","Total Cores":1}}`+"\n", i)
	}
	for i := range n {
		fmt.Fprintf(&b, `{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task End Reason":{"Reason":"Success"},"Task Info":{"Task ID":%d,"Executor ID":"%d","Launch Time":2000,"Finish Time":3000},"Task Metrics":{"Executor Run Time":900}}`+"\n", i, i%degree)
	}
	fmt.Fprintf(&b, `{"Event":"SparkListenerTaskEnd","Stage ID":0,"Stage Attempt ID":0,"Task End Reason":{"Reason":"TaskKilled"},"Task Info":{"Executor ID":"0","Launch Time":2000,"Finish Time":3000}}`+"\n")
	fmt.Fprintf(&b, `{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":0,"Stage Attempt ID":0,"Number of Tasks":%d,"Submission Time":%d,"Completion Time":%d}}`+"\n", n, 1000+launch, 1000+launch+stage)
	fmt.Fprintf(&b, `{"Event":"SparkListenerApplicationEnd","Timestamp":%d}`+"\n", 1500+launch+stage)
	return b.String()
}

func TestSparkLogs(t *testing.T) {
	t.Parallel()
	m := usba.Model{R: 0.8, Alpha: 2, Beta: 0.08, Gamma: -0.01, Eps: 0.05, Theta: 12}
	dir := t.TempDir()
	args := []string{"fit"}
	for n := 1; n <= 64; n *= 2 {
		for d := n; d >= max(1, n/8); d /= 2 {
			name := filepath.Join(dir, fmt.Sprintf("app-%d-%d", n, d))
			text := eventLog(m, n, d)
			switch d {
			case 2: // gzip
				var b bytes.Buffer
				z := gzip.NewWriter(&b)
				testkit.Need(z.Write([]byte(text)))(t)
				testkit.Check(t, z.Close())
				text = b.String()
			case 4: // rolling, in two parts
				testkit.Check(t, os.Mkdir(name, 0o755))
				half := strings.Index(text, "{\"Event\":\"SparkListenerStage")
				testkit.Check(t, os.WriteFile(filepath.Join(name, "events_2_x"), []byte(text[half:]), 0o600))
				testkit.Check(t, os.WriteFile(filepath.Join(name, "events_1_x"), []byte(text[:half]), 0o600))
				args = append(args, "--spark-log", name)
				continue
			}
			testkit.Check(t, os.WriteFile(name, []byte(text), 0o600))
			args = append(args, "--spark-log", name)
		}
	}
	a := scale(t, "", append(args, "--container-power", "10W", "--base-power", "100W")...)
	if a.Model != "usba" || a.Advice == nil || a.Advice.Size != 64 || a.Advice.Wasted == nil || a.Peak == nil {
		t.Fatalf("%+v", a)
	}
	for name, want := range map[string]float64{"r": m.R, "alpha": m.Alpha, "beta": m.Beta, "theta": m.Theta} {
		if got := a.Parameters[name].Value; math.Abs(got-want) > 0.02*want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if first := a.Measurements[0]; first.N != 1 || first.Launch != 8 || first.Stages != 10 || first.Parallel != 0.9 || first.Speedup != 1 {
		t.Errorf("%+v", first)
	}
	if *a.Advice.Wasted > *a.Peak.M || *a.Advice.Wasted < 2 {
		t.Errorf("wasted beyond %d, peak at %d", *a.Advice.Wasted, *a.Peak.M)
	}
	if exit, _, stderr := testkit.Run(t, NewCommand(), "", "fit", "--spark-log", filepath.Join(dir, "app-64-64")); exit != 2 || !strings.Contains(stderr, "one task on one executor") {
		t.Errorf("exit %d: %s", exit, stderr)
	}
}

// history is the .jhist of a job of n maps of 30 s on as many containers, with so many seconds of reducing.
func history(n int, reduce float64) string {
	var b strings.Builder
	b.WriteString("Avro-Json\n{\"type\":\"record\"}\n")
	line := func(kind, class, body string) {
		fmt.Fprintf(&b, `{"type":%q,"event":{"org.apache.hadoop.mapreduce.jobhistory.%s":{%s}}}`+"\n", kind, class, body)
	}
	line("JOB_SUBMITTED", "JobSubmitted", `"jobid":"job_1_0001","submitTime":1000`)
	for i := range n {
		line("MAP_ATTEMPT_STARTED", "TaskAttemptStarted", fmt.Sprintf(`"taskType":"MAP","attemptId":"m%d","startTime":5000`, i))
		line("MAP_ATTEMPT_FINISHED", "MapAttemptFinished", fmt.Sprintf(`"taskType":"MAP","attemptId":"m%d","taskStatus":"SUCCEEDED","finishTime":35000,"counters":null`, i))
	}
	line("REDUCE_ATTEMPT_STARTED", "TaskAttemptStarted", `"taskType":"REDUCE","attemptId":"r0","startTime":20000`)
	end := 35_000 + int64(1000*reduce)
	line("REDUCE_ATTEMPT_FINISHED", "ReduceAttemptFinished", fmt.Sprintf(`"taskType":"REDUCE","attemptId":"r0","taskStatus":"SUCCEEDED","finishTime":%d`, end))
	line("JOB_FINISHED", "JobFinished", fmt.Sprintf(`"finishTime":%d,"totalCounters":{"groups":[]}`, end+100))
	return b.String()
}

// A job whose reducing grows by a quarter for each map is bounded by it, as Sort is.
func TestHistories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"fit"}
	for _, n := range []int{1, 2, 4, 8, 16, 32} {
		name := filepath.Join(dir, fmt.Sprintf("job-%d.jhist", n))
		testkit.Check(t, os.WriteFile(name, []byte(history(n, 20*(1+0.25*float64(n-1)))), 0o600))
		args = append(args, "--history", name)
	}
	a := scale(t, "", args...)
	if a.Model != "ipso" || a.Factors == nil || math.Abs(*a.Factors.IN-0.25) > 1e-6 || math.Abs(a.Factors.EX-1) > 1e-6 || a.Factors.Eta != 0.6 || a.Factors.Expected != string(ipso.BoundedSerial) {
		t.Errorf("%+v", a.Factors)
	}
	for _, m := range a.Measurements {
		want := ipso.Workloads{N: m.N, Parallel: 30 * float64(m.N), Slowest: 30, Serial: 20 * (1 + 0.25*float64(m.N-1))}.Speedup()
		if math.Abs(m.Speedup-want) > 1e-9 || m.Over != 0 || m.M != m.N {
			t.Errorf("%+v, want %v", m, want)
		}
	}
	if a.Advice == nil || a.Advice.Wasted != nil || a.Advice.Most != 64 {
		t.Errorf("%+v", a.Advice)
	}
	if r := testkit.Need(readHistory(strings.NewReader(history(3, 5))))(t); r.Tasks != 3 || r.Units != 3 || r.Parallel != 90 || r.Slowest != 30 || r.Serial != 5 || r.Launch != 4 || math.Abs(r.Rest-4.1) > 1e-9 {
		t.Errorf("%+v", r)
	}
}

// readSparkLog reads the text of an event log.
func readSparkLog(r io.Reader) (run, error) {
	l := newSparkLog()
	if err := l.read(r); err != nil {
		return run{}, err
	}
	return l.run()
}

func submitted(stage int) string {
	return fmt.Sprintf(`{"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":%d,"Stage Attempt ID":0,"Number of Tasks":2,"Submission Time":2000}}`+"\n", stage)
}

const failed = `{"Event":"SparkListenerJobEnd","Job ID":3,"Completion Time":9000,"Job Result":{"Result":"JobFailed","Exception":{}}}` + "\n"

func TestBadLogs(t *testing.T) {
	t.Parallel()
	good := eventLog(usba.Model{R: 1, Alpha: 1, Theta: 1}, 2, 1)
	for text, want := range map[string]string{
		"":           "no SparkListenerApplicationStart",
		"x\n":        "line 1: not an event",
		good + "{\n": "line 8: not an event",
		good + "{":   "line 8: the log ends in the middle of an event",
		good + good:  "line 8: another application",
		good[:strings.Index(good, `{"Event":"SparkListenerApplicationEnd`)]:                                                     "no SparkListenerApplicationEnd in 7 lines",
		strings.Replace(good, `{"Event":"SparkListenerApplicationEnd`, submitted(1)+`{"Event":"SparkListenerApplicationEnd`, 1): "stage 1 has not completed",
		strings.Replace(good, `{"Event":"SparkListenerApplicationEnd`, failed+`{"Event":"SparkListenerApplicationEnd`, 1):       "line 7: job 3 failed",
		strings.Replace(good, `"Number of Tasks":2`, `"Number of Tasks":3`, 1):                                                  "stage 0 has 3 tasks, and 2 of them ended",
		strings.Replace(good, `"Stage ID":0,"Stage Attempt ID":0,"Number`, `"Stage ID":7,"Stage Attempt ID":0,"Number`, 1):      "stage 0 has not completed",
		strings.Replace(good, `"Submission Time":`, `"Submission Time":9`, 1):                                                   "end before its start",
		strings.Replace(good, `"Finish Time":3000`, `"Finish Time":3`, 1):                                                       "a task of stage 0",
		good[:strings.Index(good, `{"Event":"SparkListenerStage`)]:                                                              "no stage has ended",
		strings.ReplaceAll(good, `"Executor Run Time":900`, `"Executor Run Time":0`):                                            "have a duration of 0",
		strings.Replace(good, `"Number of Tasks":2`, `"Number of Tasks":0`, 1):                                                  "no tasks",
		strings.Replace(good, `"Timestamp":1000`, `"Timestamp":99000`, 1):                                                       "begins before the application",
		strings.Replace(good, `"App Name":"x"`, `"App Name":"`+strings.Repeat("x", 17<<20), 1):                                  "an event of more than",
	} {
		if _, err := readSparkLog(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	h := history(2, 1)
	for text, want := range map[string]string{
		"":            "not Avro-Json or Avro-Binary",
		"Avro-Json\n": "no map has succeeded",
		h[:strings.Index(h, `{"type":"JOB_FINISHED"`)]:                  "its end is missing",
		strings.ReplaceAll(h, `"startTime":5000`, `"startTime":99000`):  "end before its start",
		strings.Replace(h, `"submitTime":1000`, `"submitTime":9000`, 1): "before the job was submitted",
	} {
		if _, err := readHistory(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// With power only in the containers, a container is worth its watts while n*S'/S is above the rule's part; with much beside them, more
// containers are.
func TestAdvice(t *testing.T) {
	t.Parallel()
	wasted := func(base units.Power) int {
		c := testkit.Need(scaling.Given(scaling.Amdahl, map[string]float64{"eta": 0.9}))(t)
		v := advise(c, 100, power{base: base, container: 10 * units.Watt, worth: 0.5})
		if v.Wasted == nil {
			return 0
		}
		return *v.Wasted
	}
	// S = n/(0.1*n+0.9): n*S'/S = 0.9/(0.1*n+0.9) falls below a half at n = 9; the last container that is worth it is the ninth or the tenth.
	if n := wasted(0); n < 8 || n > 10 {
		t.Errorf("wasted beyond %d", n)
	}
	if a, b := wasted(0), wasted(100*units.Watt); b <= a {
		t.Errorf("with power beside the containers beyond %d, without %d", b, a)
	}
}

func FuzzReadSparkLog(f *testing.F) {
	f.Add(eventLog(usba.Model{R: 1, Alpha: 1, Theta: 1}, 4, 2))
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := readSparkLog(strings.NewReader(text)); err == nil && (!r.finite() || r.Tasks < 1 || r.Units < 1) {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzReadHistory(f *testing.F) {
	f.Add(history(2, 3))
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := readHistory(strings.NewReader(text)); err == nil && (!r.finite() || r.Tasks < 1 || r.Units < 1) {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzFit(f *testing.F) {
	f.Add(`{"model":"ipso",` + table21 + `,"predict":[{"n":200}]}`)
	f.Add(`{"model":"usba","points":[{"n":8,"m":2,"speedup":2.2}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		exit, stdout, _ := testkit.Run(t, NewCommand(), text, "fit", "--input", "-", "-o", "json")
		if exit == 0 && !json.Valid([]byte(stdout)) || exit == 1 {
			t.Errorf("exit %d: %s", exit, stdout)
		}
	})
}
