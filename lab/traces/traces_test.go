// Claims: both formats are read as they are published; whatever is wrong is an error with file, line and the numbers; no
// bytes make a reader panic or return a job that breaks its own rules; the published traces are read whole.
package traces

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// count reads a trace to its end.
func count[J any](seq iter.Seq2[*J, error], look func(*J)) (jobs int, err error) {
	for j, err := range seq {
		if err != nil {
			return jobs, err
		}
		jobs++
		look(j)
	}
	return jobs, nil
}

func TestTasks(t *testing.T) {
	t.Parallel()
	var arrivals, work []float64
	n, err := count(Tasks(strings.NewReader("0.5  2  3  1.5  4.5  \n0.5 1 2e3 2000\r\n7 3 1 1 1 1"), "a.tr"), func(j *Job) {
		arrivals, work = append(arrivals, j.Arrival), append(work, j.Work())
	})
	if err != nil || n != 3 || arrivals[1] != 0.5 || arrivals[2] != 7 || work[0] != 6 || work[1] != 2000 || work[2] != 3 {
		t.Errorf("%d jobs, %v, %v: %v", n, arrivals, work, err)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	var last Volume
	n, err := count(Volumes(strings.NewReader("job0\t9\t9\t1762\t0\t14347\njob1\t20\t11\t53088744165\t1510005522\t5759777\n"), "a.tsv"), func(v *Volume) { last = *v })
	if err != nil || n != 2 || last != (Volume{20, 53088744165}) {
		t.Errorf("%d jobs, %+v: %v", n, last, err)
	}
	if tasks, work := mapped(&last); tasks != 396 || math.Abs(work-(2654.437+792)) > 0.001 {
		t.Errorf("%d tasks of %v s", tasks, work)
	}
	if tasks, work := mapped(&Volume{}); tasks != 1 || work != 2 {
		t.Errorf("a job that reads nothing has %d tasks of %v s", tasks, work)
	}
}

// mapped is a job as map tasks of 128 MiB, at 20 MB a second, which take 2 s to start.
func mapped(v *Volume) (tasks int, work float64) {
	tasks = v.Tasks(128 << 20)
	return tasks, v.Work(tasks, 20e6, 2)
}

func TestWrongLines(t *testing.T) {
	t.Parallel()
	good := "1 1 1 1\n"
	for name, c := range map[string]struct{ in, want string }{
		"empty file":    {"", "a.tr:1: file is empty"},
		"empty line":    {good + "\n" + good, "a.tr:2: line is empty"},
		"few fields":    {"1 1", "a.tr:1: 2 fields; a line has arrival"},
		"no number":     {good + "x 1 1 1", `a.tr:2: arrival is "x", which is no number`},
		"nan":           {"NaN 1 1 1", `a.tr:1: arrival is "NaN", which is no number`},
		"infinite":      {"1 1 1 Inf", `a.tr:1: time of task 1 is "Inf": must be from 0 to 1e+09`},
		"huge":          {"1 1 1 1e400", `a.tr:1: time of task 1 is "1e400"`},
		"negative":      {"1 1 1 -2", `a.tr:1: time of task 1 is "-2": must be from 0`},
		"zero tasks":    {good + good + "1 0 1", `a.tr:3: number of tasks is "0": must be from 1 to 200000`},
		"many tasks":    {"1 99999999999999999999 1 1", `: must be from 1 to 200000`},
		"half a task":   {"1 1.5 1 1", `a.tr:1: number of tasks is "1.5", which is no whole number`},
		"times missing": {good + "1 3 1 1 1", "a.tr:2: 3 tasks, but the times of 2"},
		"times over":    {"1 1 1 1 1", "a.tr:1: 1 tasks, but the times of 2"},
		"clock back":    {"5 1 1 1\n4 1 1 1", "a.tr:2: arrival 4 is before 5 of the line above"},
		"gap":           {"5 1 1 1\n3e6 1 1 1", "a.tr:2: gap of 2.999995e+06 s after the line above"},
		"long field":    {strings.Repeat("z", 99) + " 1 1 1", `zzz", which is no number`},
		"long line":     {good + strings.Repeat("1 ", lineMost), "a.tr:2: line is longer than 4194304 bytes"},
	} {
		if _, err := count(Tasks(strings.NewReader(c.in), "a.tr"), func(*Job) {}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	first := "job0\t5\t5\t1\t1\t1\n"
	for name, c := range map[string]struct{ in, want string }{
		"fields":     {"job0 1 1 1 1", "a.tsv:1: 5 fields; a line has name"},
		"job gone":   {first + "job2 5 0 1 1 1", `a.tsv:2: name is "job2", want job1`},
		"clock back": {first + "job1 4 0 1 1 1", "a.tsv:2: arrival 4 is before 5"},
		"bytes":      {"job0 1 1 1.5 1 1", `a.tsv:1: input is "1.5", which is no whole number`},
		"negative":   {"job0 1 1 -1 1 1", `a.tsv:1: input is "-1": must be from 0`},
	} {
		if _, err := count(Volumes(strings.NewReader(c.in), "a.tsv"), func(*Volume) {}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// A disk that fails in the middle is an error with the line and its cause.
func TestReadFails(t *testing.T) {
	t.Parallel()
	n, err := count(Tasks(io.MultiReader(strings.NewReader("1 1 1 1\n"), iotest.ErrReader(io.ErrUnexpectedEOF)), "a.tr"), func(*Job) {})
	if n != 1 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(err.Error(), "a.tr:2: cannot be read") {
		t.Errorf("%d jobs, %v", n, err)
	}
}

// The page of the sources has each trace with a checksum.
func TestSourcesAreDocumented(t *testing.T) {
	t.Parallel()
	page := testkit.Need(os.ReadFile("../docs/traces.md"))(t)
	for _, path := range layout() {
		if !regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(path) + "` \\| `[0-9a-f]{64}` \\|$").Match(page) {
			t.Errorf("lab/docs/traces.md has no checksum of %s", path)
		}
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := CheckDir(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "hawk-format/GOOG_subtrace.tr") {
		t.Errorf("%v", err)
	}
	testkit.Check(t, os.MkdirAll(filepath.Join(dir, "swim"), 0o755))
	testkit.Check(t, os.WriteFile(filepath.Join(dir, "swim", "FB-2010_samples_24_times_1hr_0.tsv"), []byte("job0 1 1 1 1 1"), 0o600))
	if err := CheckDir(dir); err != nil {
		t.Error(err)
	}
	f, err := Open(dir, "facebook2010")
	testkit.Check(t, err)
	if !f.Swim {
		t.Error("SWIM's trace is not of SWIM")
	}
	testkit.Check(t, f.Close())
	if _, err := Open(dir, "google"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := Open(dir, "../secret"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := CheckDir(filepath.Join(dir, "swim", "FB-2010_samples_24_times_1hr_0.tsv")); err == nil {
		t.Error("a file is a folder of traces")
	}
}

// The published traces, where HEADROOM_TRACES names a folder of them.
func TestPublished(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HEADROOM_TRACES")
	if dir == "" {
		testkit.NotRun(t, "HEADROOM_TRACES names no folder of published traces")
	}
	want := map[string]struct{ jobs, tasks int }{"google": {10000, 312558}, "yahoo1": {2910, 122878}, "yahoo2": {3363, 137029}, "pigeon-google50": {5001, 10291}, "facebook2010": {24442, 0}}
	for name := range layout() {
		f, err := Open(dir, name)
		testkit.Check(t, err)
		jobs, tasks := 0, 0
		if f.Swim {
			jobs, err = count(Volumes(f, name), func(*Volume) {})
		} else {
			jobs, err = count(Tasks(f, name), func(j *Job) { tasks += len(j.Times) })
		}
		testkit.Check(t, f.Close())
		if w, ok := want[name]; err != nil || ok && (jobs != w.jobs || tasks != w.tasks) {
			t.Errorf("%s: %d jobs, %d tasks: %v", name, jobs, tasks, err)
		}
	}
}

func FuzzTasks(f *testing.F) {
	f.Add("0.5  2  3  1.5  4.5  \n0.6 1 2e3 2000\n")
	f.Add("5 1 1 1\n4 1 1 1")
	f.Add("1 1 1 0x1p-2\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		last := 0.0
		jobs, err := count(Tasks(strings.NewReader(in), "f"), func(j *Job) {
			if j.Arrival < last || len(j.Times) < 1 || !(j.Work() >= 0) || math.IsInf(j.Work(), 0) {
				t.Errorf("%+v after %v", j, last)
			}
			last = j.Arrival
		})
		judge(t, in, jobs, err)
	})
}

func FuzzVolumes(f *testing.F) {
	f.Add("job0\t9\t9\t1762\t0\t14347\njob1\t20\t11\t53088744165\t1510005522\t5759777\n")
	f.Add("job0 1 1 1 x 1")
	f.Fuzz(func(t *testing.T, in string) {
		last := 0.0
		jobs, err := count(Volumes(strings.NewReader(in), "f"), func(v *Volume) {
			if tasks, work := mapped(v); v.Arrival < last || tasks < 1 || !(work > 0) || math.IsInf(work, 0) {
				t.Errorf("%+v: %d tasks of %v s", v, tasks, work)
			}
			last = v.Arrival
		})
		judge(t, in, jobs, err)
	})
}

// judge holds that each line is a job, or the first that is none is named.
func judge(t *testing.T, in string, jobs int, err error) {
	t.Helper()
	var bad *Error
	switch {
	case err == nil && jobs != strings.Count(strings.TrimSuffix(in, "\n"), "\n")+1:
		t.Errorf("%d jobs of %q", jobs, in)
	case err != nil && (!errors.As(err, &bad) || bad.Line != jobs+1 || bad.Problem == ""):
		t.Errorf("after %d jobs: %v", jobs, err)
	}
}
