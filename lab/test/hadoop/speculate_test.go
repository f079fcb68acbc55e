// Claim: in an unmodified Hadoop a copy of a map that runs gets the next container before all maps that
// wait, and maps that wait get theirs in the order that a policy names. The straggler is real: its process is
// stopped. The policy is written here, and what really ran when is read from the job's history.
package hadoop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/scheduler/jhist"
)

// toldTask is a map task as its application master reports it.
type toldTask struct {
	Task   int
	Bytes  int64
	Copies int
}

// told is an application master's request to a policy.
type told struct {
	Policy                 string
	Slots                  int
	Waiting, Running, Done []toldTask
}

// scripted is a scheduler whose policy is: a copy of the straggler as soon as it runs, and
// otherwise the shortest map that waits.
type scripted struct {
	straggler int

	mu       sync.Mutex
	copied   bool
	waited   []int // maps that waited when the copy was requested
	launched []int // maps in the order in which they were given containers
}

type scriptedAction struct {
	Kind string `json:"kind"`
	Task int    `json:"task"`
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasSuffix(r.URL.Path, "/speculate") {
		_, _ = fmt.Fprintln(w, `{"stop":false,"dropped":[]}`)
		return
	}
	var ask told
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"actions": s.decide(ask)}) // a master that is gone needs no answer
}

func (s *scripted) decide(ask told) []scriptedAction {
	s.mu.Lock()
	defer s.mu.Unlock()
	actions := []scriptedAction{}
	i := slices.IndexFunc(ask.Running, func(t toldTask) bool { return t.Task == s.straggler })
	if !s.copied && i >= 0 && ask.Running[i].Copies == 1 {
		s.waited = nil
		for _, t := range ask.Waiting {
			s.waited = append(s.waited, t.Task)
		}
		return append(actions, scriptedAction{"copy", s.straggler})
	}
	s.copied = s.copied || i >= 0
	if !s.copied || ask.Slots < 1 {
		return actions
	}
	slices.SortFunc(ask.Waiting, func(a, b toldTask) int { return cmp.Compare(a.Bytes, b.Bytes) })
	if len(ask.Waiting) > 0 {
		s.launched = append(s.launched, ask.Waiting[0].Task)
		actions = append(actions, scriptedAction{"launch", ask.Waiting[0].Task})
	}
	return actions
}

func TestCopiesOvertake(t *testing.T) {
	const maps, straggler = 8, 0 // Hadoop numbers the longest input 0
	c, ctx := shared(t), within(t)
	queues := hadoop.Queues3()
	queues[0].MaxMB, queues[0].MaxVCores = 1024, 3 // the master and two maps
	testkit.Check(t, c.SetQueues(ctx, queues))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Check(t, c.SetQueues(ctx, hadoop.Queues3()))
	})
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	testkit.Check(t, os.Mkdir(in, 0o755))
	for i := range maps {
		testkit.Check(t, os.WriteFile(filepath.Join(in, "part-"+strconv.Itoa(i)), []byte(strings.Repeat("word\n", 1000*(i+1))), 0o644))
	}
	policy := &scripted{straggler: straggler}
	server := httptest.NewServer(policy)
	t.Cleanup(server.Close)
	hooks := hadoop.Hooks{Jar: c.plugin, Address: strings.TrimPrefix(server.URL, "http://"), MasterMB: 512}
	j := testkit.Need(c.Submit(ctx, hooks.Into(hadoop.Job{
		Program: "wordcount", Queue: "q1", Args: []string{in, out},
		Properties: map[string]string{"headroom.speculation": "gs", "headroom.stop.interval-ms": "100"},
	})))(t)
	c.stall(t, j.ID, straggler)
	r := testkit.Need(j.Wait(ctx))(t)
	if !r.Succeeded() || r.History == nil {
		t.Fatalf("%+v", r)
	}
	if got, want := output(t, out), fmt.Sprintf("word\t%d\n", 1000*maps*(maps+1)/2); got != want {
		t.Errorf("the job's output is %q, want %q", got, want)
	}
	policy.mu.Lock()
	defer policy.mu.Unlock()
	policy.judge(t, r.History)
}

// judge holds what ran when against what was decided.
func (s *scripted) judge(t *testing.T, h *jhist.History) {
	t.Helper()
	began := map[int]time.Time{}
	for _, a := range h.Of("MAP", "SUCCEEDED") {
		began[mapOf(t, a.ID)] = a.Started
		t.Logf("%s on %s from %s to %s", a.ID, a.Node, a.Started.Format("05.000"), a.Finished.Format("05.000"))
	}
	for _, a := range h.Attempts {
		if a.Status != "SUCCEEDED" {
			t.Logf("%s %s on %s from %s to %s", a.ID, a.Status, a.Node, a.Started.Format("05.000"), a.Finished.Format("05.000"))
		}
		if a.Status == "FAILED" {
			t.Errorf("%s has failed", a.ID)
		}
	}
	if len(s.waited) < 4 || len(s.launched) < 3 {
		t.Fatalf("%d maps waited for the copy and %d were put in order: too few to say anything", len(s.waited), len(s.launched))
	}
	for _, m := range s.waited {
		if !began[s.straggler].Before(began[m]) {
			t.Errorf("map %d began at %v, before the copy at %v", m, began[m], began[s.straggler])
		}
	}
	for i, m := range s.launched[1:] {
		if before := s.launched[i]; began[m].Before(began[before]) {
			t.Errorf("map %d was put before %d, and began after it", before, m)
		}
	}
}

// mapOf is the number of an attempt's task.
func mapOf(t *testing.T, attempt string) int {
	t.Helper()
	parts := strings.Split(attempt, "_")
	return testkit.Need(strconv.Atoi(parts[len(parts)-2]))(t)
}

// stall waits until the first attempt of a map of the application has a process, and stops it.
func (l *lab) stall(t *testing.T, application string, number int) {
	t.Helper()
	id := fmt.Sprintf("attempt_%s_m_%06d_0", strings.TrimPrefix(application, "application_"), number)
	testkit.Eventually(t, patience, id+" has a process", func() bool {
		pids := named(t, id)
		if len(pids) == 0 {
			return false
		}
		testkit.Check(t, syscall.Kill(pids[0], syscall.SIGSTOP))
		return true
	})
}

// named are the JVMs that have an argument of that name.
func named(t *testing.T, argument string) (pids []int) {
	t.Helper()
	files := testkit.Need(filepath.Glob("/proc/[0-9]*/cmdline"))(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(text), "\x00")
		if strings.HasSuffix(args[0], "java") && slices.Contains(args, argument) {
			pids = append(pids, testkit.Need(strconv.Atoi(filepath.Base(filepath.Dir(file))))(t))
		}
	}
	return pids
}
