package jobfile

// A job file is understood completely or refused with position, hint and exit
// code 2; what the log keeps of it means the same job anywhere.

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

const fullJob = `name: words
class: high
slots: 4
min_tasks: 75%
map:
  input: text/*.txt
  command: [powerlab, app, wordcount, "{input}"]
reduce:
  command: [powerlab, app, merge]
output: ../out/words
max_attempts: 5
`

var classes = []string{"high", "low"}

func TestParseJob(t *testing.T) {
	t.Parallel()
	f := testkit.Need(Parse("/data/jobs/words.yaml", []byte(fullJob), classes))(t)
	want := &File{
		Name: "words", Class: "high", Slots: 4, MinTasks: "75%", MaxAttempts: 5, Folder: "/data/jobs", Output: "/data/out/words",
		Map:    MapStage{Input: "/data/jobs/text/*.txt", Command: []string{"powerlab", "app", "wordcount", "{input}"}},
		Reduce: &ReduceStage{Command: []string{"powerlab", "app", "merge"}},
	}
	if d := cmp.Diff(want, f, cmpopts.IgnoreUnexported(File{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := f.Fraction(); got != 0.75 {
		t.Errorf("fraction %v", got)
	}
}

// The floor is the greatest that min_tasks and error ask for, and the canonical file asks for the same.
func TestErrorBoundIsFloor(t *testing.T) {
	t.Parallel()
	for keys, c := range map[string]struct {
		floor float64
		why   string
	}{
		"error: 5%\n":                       {0.95, ""},
		"error: 0.05\n":                     {0.95, ""},
		"error: 0\n":                        {1, ""},
		"min_tasks: 75%\nerror: 5%\n":       {0.95, "error: 5% (beside min_tasks: 75%)"},
		"min_tasks: 99%\nerror: 5%\n":       {0.99, "min_tasks: 99% (beside error: 5%)"},
		"min_tasks: 75%\ndeadline: 10m\n":   {0.75, ""},
		"quality: 90%\nerror: 5%\n":         {1, "all tasks"},
		"deadline: 10m\nerror: 12.5%\n":     {0.875, ""},
		"deadline: 10m\nmax_attempts: 2\n":  {1, ""},
		"min_tasks: 100%\nerror: 50%\n":     {1, "min_tasks: 100%"},
		"min_tasks: 10%\nerror: 0.999999\n": {0.1, "min_tasks: 10%"},
	} {
		job := strings.Replace(strings.Replace(fullJob, "min_tasks: 75%\n", keys, 1), "max_attempts: 5\n", "", 1)
		f := testkit.Need(Parse("/f", []byte(job), classes))(t)
		bound := f.Floor(nil)
		if math.Abs(bound.Fraction-c.floor) > 1e-12 || !strings.Contains(bound.Why, c.why) {
			t.Errorf("%q: floor %v, want %v", keys, bound, c)
		}
		again := testkit.Need(Parse("/f", testkit.Need(f.Specification(bound))(t), classes))(t)
		if f.Quality == "" && again.Fraction() != bound.Fraction {
			t.Errorf("%q: the canonical file has the floor %v, want %v", keys, again.Fraction(), bound.Fraction)
		}
		part, ok := again.ErrorBound()
		if was, had := f.ErrorBound(); part != was || ok != had {
			t.Errorf("%q: the canonical file has the bound %v, %v", keys, part, ok)
		}
	}
}

func TestParseJobDefaults(t *testing.T) {
	t.Parallel()
	f, err := Parse("/j/a.yaml", []byte("name: a\nclass: low\nslots: 1\nmap: {input: /t/*, command: [cat]}\noutput: /o\nfolder: /work\n"), classes)
	if err != nil || f.MaxAttempts != 3 || f.Fraction() != 1 || f.Folder != "/work" || f.Reduce != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestParseJobRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, to, want string }{
		"no name":          {"name: words\n", "", "/f: name is missing"},
		"odd name":         {"name: words", "name: ../words", "/f:1:7: name"},
		"no class":         {"class: high\n", "", "/f: class is missing"},
		"unknown class":    {"class: high", "class: urgent", `/f:2:8: unknown class "urgent"`},
		"no slots":         {"slots: 4\n", "", "/f: slots is missing"},
		"zero slots":       {"slots: 4", "slots: 0", "/f:3:8: slots is 0"},
		"negative slots":   {"slots: 4", "slots: -1", "/f:3:8: slots is -1"},
		"slots in words":   {"slots: 4", "slots: four", `/f:3:8: "four" is not a whole number`},
		"no fraction":      {"75%", "0", "/f:4:12: min_tasks"},
		"too much":         {"75%", "1.01", "/f:4:12: min_tasks"},
		"percent too much": {"75%", "175%", "/f:4:12: min_tasks"},
		"not a number":     {"75%", "most", "/f:4:12: min_tasks"},
		"NaN":              {"75%", "NaN", "/f:4:12: min_tasks"},
		"no accuracy":      {"min_tasks: 75%", "quality: 0", "/f:4:10: quality"},
		"percent missing":  {"min_tasks: 75%", "quality: 90", "/f:4:10: quality \"90\""},
		"percent twice":    {"min_tasks: 75%", "quality: 90%%", "/f:4:10: quality"},
		"a letter":         {"min_tasks: 75%", "quality: 9O%", "/f:4:10: quality"},
		"empty accuracy":   {"min_tasks: 75%", "quality: ''", "/f:4:10: quality"},
		"profile alone":    {"min_tasks: 75%", "profile: words", "/f:4:10: profile \"words\" needs quality"},
		"odd profile":      {"min_tasks: 75%", "quality: 90%\nprofile: ../words", "/f:5:10: profile name \"../words\" is invalid"},
		"error of all":     {"min_tasks: 75%", "error: 100%", "/f:4:8: error \"100%\": must be at least 0 and below 1"},
		"error above 1":    {"min_tasks: 75%", "error: 1.5", "/f:4:8: error"},
		"error below 0":    {"min_tasks: 75%", "error: -5%", "/f:4:8: error"},
		"error no number":  {"min_tasks: 75%", "error: NaN", "/f:4:8: error"},
		"empty error":      {"min_tasks: 75%", "error: ''", "/f:4:8: error"},
		"deadline at once": {"min_tasks: 75%", "deadline: 0s", "/f:4:11: deadline is 0s; it must be above 0"},
		"deadline past":    {"min_tasks: 75%", "deadline: -5m", "/f:4:11: deadline"},
		"no input":         {"  input: text/*.txt\n", "", "/f: map.input is missing"},
		"no command":       {`  command: [powerlab, app, wordcount, "{input}"]` + "\n", "", "/f: map.command is missing"},
		"empty command":    {`[powerlab, app, wordcount, "{input}"]`, "[]", "/f: map.command is missing"},
		"empty program":    {`[powerlab, app, wordcount, "{input}"]`, `[""]`, "/f:7:13: the program"},
		"NUL":              {`"{input}"`, `"a\0b"`, "/f:7:39: map.command contains a NUL"},
		"empty reduce":     {"[powerlab, app, merge]", "[]", "/f: reduce.command is missing"},
		"no output":        {"output: ../out/words\n", "", "/f: output is missing"},
		"zero attempts":    {"max_attempts: 5", "max_attempts: 0", "/f:11:15: max_attempts is 0"},
		"many attempts":    {"max_attempts: 5", "max_attempts: 101", "/f:11:15: max_attempts is 101"},
		"odd dispatch":     {"slots: 4", "dispatch: dove", "/f:3:11: dispatch \"dove\" is unknown"},
		"empty dispatch":   {"slots: 4", "dispatch: ''", "/f:3:11: dispatch is empty"},
		"pigeon's slots":   {"slots: 4", "slots: 4\ndispatch: pigeon", "/f:3:8: slots and dispatch: pigeon exclude each other"},
		"length alone":     {"slots: 4", "slots: 4\nlength: short", "/f:4:9: length needs dispatch"},
		"odd length":       {"slots: 4", "dispatch: pigeon\nlength: tiny", "/f:4:9: length \"tiny\" is unknown"},
		"empty length":     {"slots: 4", "dispatch: pigeon\nlength: ''", "/f:4:9: length \"\" is unknown"},
		"no task time":     {"slots: 4", "dispatch: pigeon\ntask_time: 0s", "/f:4:12: task_time is 0s"},
		"bare task time":   {"slots: 4", "dispatch: pigeon\ntask_time: 3", "/f:4:12: task_time"},
		"no tasks":         {"input: text/*.txt", "tasks: 0", "/f:6:10: tasks is 0; it must be from 1 to 10000"},
		"past tasks":       {"input: text/*.txt", "tasks: -1", "/f:6:10: tasks is -1"},
		"many tasks":       {"input: text/*.txt", "tasks: 10001", "/f:6:10: tasks is 10001"},
		"tasks and input":  {"input: text/*.txt", "input: text/*.txt\n  tasks: 3", "/f:7:10: tasks and input exclude each other"},
		"tasks no input":   {"input: text/*.txt", "tasks: 3", "/f:7:12: {input} in a job without input files"},
		"unknown key":      {"slots: 4", "slot: 4", `/f:3:1: unknown key "slot"`},
		"broken":           {"[powerlab, app, merge]", "[powerlab", "/f:10:"},
		"empty":            {fullJob, "", "/f: name is missing"},
		"a list":           {fullJob, "- a\n", "/f:1:"},
		"not UTF-8":        {"words", "w\xffrds", "/f: the job file is not UTF-8"},
		"too long":         {fullJob, fullJob + strings.Repeat("#", SizeMax), "/f: a job file of"},
	} {
		_, err := Parse("/f", []byte(strings.Replace(fullJob, c.from, c.to, 1)), classes)
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || e.Hint == "" || !strings.HasPrefix(e.Message, c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// sameLeast takes the default of min_tasks for what it stands for.
var sameLeast = cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "MinTasks" },
	cmp.Transformer("least", func(s string) string { return strings.TrimSuffix(s, "100%") }))

// What the log keeps is read back as the same job.
func FuzzJobFile(f *testing.F) {
	f.Add([]byte(fullJob))
	f.Add([]byte("name: a\nclass: low\nslots: 1\nmap: {input: '/t/ *', command: ['{output}', \"\\t\"]}\noutput: /o\n"))
	f.Add([]byte("{name: a, class: low, slots: 1, min_tasks: 1e-3, map: {input: x, command: [\"'#: \"]}, output: '*'}"))
	f.Add([]byte("{name: a, class: low, slots: 1, quality: 90%, map: {input: x, command: [x]}, output: x}"))
	f.Add([]byte("name: a\nclass: low\nslots: 1\nmap: {input: x, command: [" + strings.Repeat("x, ", 7000) + "x]}\noutput: x\n"))
	f.Add([]byte("{name: a, class: low, dispatch: pigeon, length: short, task_time: 1s, map: {tasks: 60000, command: [x]}, output: x}"))
	f.Add([]byte("name: " + strings.Repeat("{a: ", 15_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var job *File
		var err error
		testkit.Cheap(t, len(data), func() { job, err = Parse("/dir/f", data, classes) })
		if err != nil {
			e, ok := errors.AsType[*cli.Error](err)
			if !ok || e.Exit != cli.ExitUsage || e.Hint == "" || !strings.HasPrefix(e.Message, "/dir/f:") {
				t.Fatalf("refused as %v", err)
			}
			return
		}
		canonical := testkit.Need(job.canonical())(t)
		again, err := Parse("/elsewhere/g", canonical, nil)
		if err != nil {
			t.Fatalf("own text refused: %v\n%s", err, canonical)
		}
		if d := cmp.Diff(job, again, cmpopts.IgnoreUnexported(File{}), cmpopts.EquateEmpty(), sameLeast); d != "" {
			t.Fatalf("(-first +again):\n%s\n%s", d, canonical)
		}
	})
}

// No text of a job changes on its way through the log.
func TestCanonicalKeepsEveryText(t *testing.T) {
	t.Parallel()
	odd := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t'"\\#:{}\[\]&*!|>%@,?a-]{1,8}`),
		rapid.SampledFrom([]string{"null", "~", "yes", "0x1F", "1e3", "2026-11-21", "<<", "---", "\u2028", "\x7f", "\ufeff", "a\r\nb", " "}))
	rapid.Check(t, func(t *rapid.T) {
		word := func(name string) string {
			return odd.Filter(func(s string) bool { return s != "" && !strings.ContainsRune(s, 0) }).Draw(t, name)
		}
		job := &File{
			Name: "a", Class: "low", Slots: 1, MinTasks: "50%", MaxAttempts: 3, Folder: "/f", Output: "/out/x" + word("output") + "x",
			Map: MapStage{Input: "/in/x" + word("input") + "x", Command: []string{word("program"), word("argument"), ""}},
		}
		job.Output, job.Map.Input = filepath.Clean(job.Output), filepath.Clean(job.Map.Input)
		if rapid.Bool().Draw(t, "quality") {
			job.Quality, job.Profile = "90%", rapid.SampledFrom([]string{"a", "null", "1e3", "0x1F", "a.b-c_d"}).Draw(t, "profile")
			job.MinTasks = rapid.SampledFrom([]string{"", "50%"}).Draw(t, "least")
		}
		if rapid.Bool().Draw(t, "masters") {
			job.Dispatch, job.Slots = Pigeon, SlotsMax
			job.Length = rapid.SampledFrom([]string{"", Short, Long}).Draw(t, "length")
			job.TaskTime = rapid.SampledFrom([]string{"", "800ms"}).Draw(t, "task time")
		}
		if rapid.Bool().Draw(t, "no files") {
			job.Map.Input, job.Map.Tasks = "", rapid.IntRange(1, job.tasksMost()).Draw(t, "tasks")
			job.Map.Command = []string{"true", "{index}"}
		}
		if rapid.Bool().Draw(t, "reduce") {
			job.Reduce = &ReduceStage{Command: []string{word("reducer")}}
		}
		text := testkit.Need(job.canonical())(t)
		again, err := Parse("/f/j.yaml", text, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := cmp.Diff(job, again, cmpopts.IgnoreUnexported(File{})); d != "" {
			t.Fatalf("(-job +again):\n%s\n%s", d, text)
		}
	})
}
