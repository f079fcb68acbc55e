// Claims: what Spark's REST interface answers becomes the same progress; a stage that began again counts once;
// answers that are invalid are refused as a whole; whatever comes, the sums hold.
package sparkapp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// What a driver of Spark 3.5.9 answers, without the fields that are not read.
const (
	applications = `[{"id":"app-1","name":"words-1","attempts":[{"completed":false,"sparkUser":"u"}]}]`
	environment  = `{"runtime":{"javaVersion":"17"},"sparkProperties":[["spark.app.name","words-1"],["spark.headroom.job","words"],["spark.headroom.run","2"],["spark.headroom.token","*********(redacted)"]]}`
	stages       = `[{"status":"PENDING","stageId":2,"attemptId":0,"numTasks":8,"numActiveTasks":0,"numCompletedIndices":0,"executorRunTime":0,"name":"collect"},
	{"status":"ACTIVE","stageId":1,"attemptId":1,"numTasks":5,"numActiveTasks":3,"numCompletedIndices":2,"executorRunTime":1500,"name":"map again"},
	{"status":"FAILED","stageId":1,"attemptId":0,"numTasks":20,"numActiveTasks":0,"numCompletedIndices":20,"executorRunTime":9000,"name":"map"},
	{"status":"SKIPPED","stageId":0,"attemptId":0,"numTasks":30,"numActiveTasks":0,"numCompletedIndices":0,"executorRunTime":0,"name":"earlier"}]`
	executors = `[{"id":"driver","hostPort":"127.0.0.1:1","isActive":true,"totalCores":0,"activeTasks":0},
	{"id":"0","hostPort":"10.0.0.11:40001","isActive":true,"totalCores":4,"activeTasks":3},
	{"id":"1","hostPort":"10.0.0.12:40001","isActive":true,"totalCores":4,"activeTasks":0},
	{"id":"2","hostPort":"10.0.0.13:40001","isActive":false,"totalCores":4,"activeTasks":0}]`
)

// driver answers as a driver does.
func driver(answers map[string]string) Ask {
	return func(_ context.Context, path string) ([]byte, error) {
		a, ok := answers[path]
		if !ok {
			return nil, fmt.Errorf("%s: %w", path, errAbsent)
		}
		return []byte(a), nil
	}
}

var errAbsent = errors.New("no such page")

func TestLook(t *testing.T) {
	t.Parallel()
	ask := driver(map[string]string{
		"/applications": applications, "/applications/app-1/environment": environment, "/applications/app-1/stages": stages, "/applications/app-1/executors": executors,
	})
	id := testkit.Need(Identify(t.Context(), ask))(t)
	if id.ID != "app-1" || id.Properties["spark.headroom.job"] != "words" || id.Properties["spark.headroom.run"] != "2" || id.Properties["spark.app.name"] != "" {
		t.Errorf("%+v", id)
	}
	known := Progress{Theta: 0.2, Dropped: 10, Shuffles: []Shuffle{{Total: 30, Kept: 20}}}
	p := testkit.Need(Look(t.Context(), ask, id.ID, known, node))(t)
	// Stage 1: 20 tasks, of which the attempt in progress has 3 of its 5 left. Stage 2: 8 that wait.
	if !p.Known || p.From != ByREST || p.Tasks != 38 || p.Done != 17 || p.Running != 3 || p.Dropped != 10 || p.Pending() != 8 || p.Executors != 2 || p.Cores != 8 || p.Theta != 0.2 || len(p.Shuffles) != 1 {
		t.Errorf("%+v", p)
	}
	if !maps.Equal(p.RunningOn, map[string]int{"n01": 3, "n02": 4}) {
		t.Errorf("%v", p.RunningOn)
	}
	if s := p.Stages[0]; len(p.Stages) != 2 || s.ID != 1 || s.Attempt != 1 || s.Kept != 20 || s.Done != 17 || s.Name != "map again" || s.Seconds != 10.5 || !s.Begun || s.Ended {
		t.Errorf("%+v", p.Stages)
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	good := map[string]string{"/applications": applications, "/applications/app-1/environment": environment, "/applications/app-1/stages": stages, "/applications/app-1/executors": executors}
	for name, c := range map[string]struct{ path, answer string }{
		"no JSON":              {"/applications/app-1/stages", "<html>"},
		"an object":            {"/applications/app-1/stages", "{}"},
		"more done than tasks": {"/applications/app-1/stages", strings.Replace(stages, `"numCompletedIndices":2`, `"numCompletedIndices":6`, 1)},
		"below 0":              {"/applications/app-1/stages", strings.Replace(stages, `"numTasks":8`, `"numTasks":-8`, 1)},
		"nested":               {"/applications/app-1/stages", strings.Repeat("[", 1<<16)},
		"long":                 {"/applications/app-1/stages", strings.Repeat(" ", AnswerMax+1)},
		"no host":              {"/applications/app-1/executors", strings.Replace(executors, "10.0.0.11:40001", "somewhere", 1)},
		"two applications":     {"/applications", `[{"id":"a"},{"id":"b"}]`},
		"none":                 {"/applications", `[]`},
	} {
		answers := maps.Clone(good)
		answers[c.path] = c.answer
		id, err := Identify(t.Context(), driver(answers))
		if err == nil {
			_, err = Look(t.Context(), driver(answers), id.ID, Progress{}, node)
		}
		if !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(good, "/applications/app-1/executors")
	if _, err := Look(t.Context(), driver(good), "app-1", Progress{}, node); !errors.Is(err, errAbsent) {
		t.Errorf("half of it: %v", err)
	}
}

func FuzzREST(f *testing.F) {
	f.Add([]byte(stages), []byte(executors))
	f.Add([]byte(`[]`), []byte(`[]`))
	f.Add([]byte(`[{"stageId":1,"numTasks":1073741824},{"stageId":2,"numTasks":1073741824,"numActiveTasks":9}]`), []byte(`null`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		answers := map[string]string{"/applications/x/stages": string(a), "/applications/x/executors": string(b)}
		testkit.Cheap(t, len(a)+len(b), func() {
			if p, err := Look(t.Context(), driver(answers), "x", Progress{Dropped: 3}, node); err == nil {
				sane(t, p)
			}
		})
	})
}
