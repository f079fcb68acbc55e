// Claims, with everything real (a coordinator, the scheduler, two emulated nodes with
// powerd, and a Spark Worker on each): under discipline p a job of a higher class kills the
// running driver, which starts again from the beginning afterwards; a scheduler that is
// killed by kill -9 takes its driver over again and learns of its end; a job that is
// cancelled leaves neither driver nor executors; under da a job runs with the ratio of its
// class, which the coordinators have committed first.
package spark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"headroom/internal/pause"
	"headroom/internal/testkit"
	"headroom/lab/spark"
)

// site is the lab as the test of the scheduler sees it.
type site struct {
	*testing.T
	*lab
	ctx context.Context
}

func newSite(t *testing.T) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	s := &site{T: t, lab: shared(t), ctx: ctx}
	t.Cleanup(func() {
		s.site.KillScheduler()
		if t.Failed() {
			s.say()
		}
	})
	return s
}

// scheduler starts the scheduler with this discipline and these classes.
func (s *site) scheduler(discipline, classes string) {
	s.Helper()
	nodes := testkit.Need(json.Marshal(s.Hosts()))(s)
	more := fmt.Sprintf("discipline: %s\nclasses: %s\nspark:\n  home: %q\n  master: %q\n  plugin: %q\n  nodes: %s\n  kill_after: 5s\n  driver: [/usr/bin/env, %q]\n",
		discipline, classes, s.Release().Home, s.Master(), s.hook, nodes, "SPARK_CONF_DIR="+s.ConfDir())
	testkit.Check(s, s.site.StartScheduler(more))
	s.await("the scheduler does not answer", func() bool { _, err := s.list(); return err == nil })
}

// job is a job in the output of `scheduler list -o json`.
type job struct {
	ID, Name, State, Outcome string
	Done, Dropped, Tasks     int
	Run                      *int
	Theta                    *float64
	RunningOn                map[string]int `json:"running_on"`
}

// command runs one of our programs and reads its JSON.
func (s *site) command(into any, argv ...string) error {
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.bin, argv[0]), append(argv[1:], "-o", "json")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", argv, err, said.Bytes())
	}
	return json.Unmarshal(out, into)
}

func (s *site) list() ([]job, error) {
	var answer struct{ Items []job }
	err := s.command(&answer, "scheduler", "list", "--addr", s.site.Scheduler())
	return answer.Items, err
}

// of is the job with this name.
func (s *site) of(name string) job {
	s.Helper()
	jobs, err := s.list()
	if err != nil {
		return job{}
	}
	i := slices.IndexFunc(jobs, func(j job) bool { return j.Name == name })
	if i < 0 {
		return job{}
	}
	return jobs[i]
}

// await looks every 200 ms until done is true.
func (s *site) await(not string, done func() bool) {
	s.Helper()
	for !done() {
		if !pause.For(s.ctx, 200*time.Millisecond) {
			jobs, err := s.list()
			s.Fatalf("%s: %+v, %v", not, jobs, err)
		}
	}
}

// submit hands a word count in.
func (s *site) submit(name, class, in string, partitions int) job {
	s.Helper()
	file := filepath.Join(s.TempDir(), name+".yaml")
	text := fmt.Sprintf("name: %s\nclass: %s\nslots: 2\nmin_tasks: 50%%\nspark:\n  application: %s\n  main: headroom.apps.spark.WordPopularity\n  args: [%q, \"%d\", \"50\", \"2\"]\n",
		name, class, s.apps, in, partitions)
	testkit.WriteFile(s, file, text)
	var answer struct{ Items []job }
	if err := s.command(&answer, "scheduler", "submit", file, "--addr", s.site.Scheduler()); err != nil || len(answer.Items) != 1 {
		s.Fatalf("%+v, %v", answer, err)
	}
	return answer.Items[0]
}

// underway waits until tasks of a run are running on known nodes.
func (s *site) underway(name string, run int) {
	s.Helper()
	var j job
	s.await(name+" does not get on", func() bool {
		j = s.of(name)
		if slices.Contains([]string{"done", "failed"}, j.State) {
			s.Fatalf("it was over before it was seen: %+v", j)
		}
		return j.State == "running" && j.Run != nil && *j.Run == run && len(j.RunningOn) > 0
	})
	for node := range maps.Keys(j.RunningOn) {
		if !slices.Contains(nodeNames, node) {
			s.Errorf("%s runs on %q, which is no node", name, node)
		}
	}
}

func (s *site) ends(name, state string) job {
	s.Helper()
	var j job
	s.await(name+" does not come to its end: "+state, func() bool {
		j = s.of(name)
		if slices.Contains([]string{"done", "failed", "cancelled"}, j.State) && j.State != state {
			s.Fatalf("%+v", j)
		}
		return j.State == state
	})
	return j
}

// answer is what the job's last run printed.
func (s *site) answer(id string, run int) spark.Answer {
	s.Helper()
	paths, err := filepath.Glob(filepath.Join(s.site.Path("scheduler"), "*", id, fmt.Sprintf("run-%d", run), "stdout"))
	if err != nil || len(paths) != 1 {
		s.Fatalf("the output of %s: %v, %v", id, paths, err)
	}
	text := testkit.Need(os.ReadFile(paths[0]))(s)
	return testkit.Need(spark.ReadAnswer(string(text)))(s)
}

// say shows the ends of the logs of the scheduler and of every driver.
func (s *site) say() {
	paths, err := filepath.Glob(s.site.Path("logs", "scheduler.log"))
	more, merr := filepath.Glob(s.site.Path("scheduler", "*", "*", "run-*", "std*"))
	for _, path := range append(paths, more...) {
		text, rerr := os.ReadFile(path)
		s.Logf("%s: %v\n%s", path, errors.Join(err, merr, rerr), text[max(0, len(text)-4000):])
	}
}

func TestSchedulerRunsSpark(t *testing.T) {
	s := newSite(t)
	big, _ := posts(t)
	small := filepath.Join(t.TempDir(), "few.xml")
	if _, err := (spark.Posts{Bytes: 2 << 20, Topical: 0.3, Seed: 5}).Write(small); err != nil {
		t.Fatal(err)
	}
	const plain = "[high, low]"
	s.scheduler("p", plain)
	low := s.submit("reports", "low", big, 60)
	s.underway("reports", 1)
	high := s.submit("urgent", "high", big, 24)
	s.underway("urgent", 1)
	if j := s.of("reports"); j.State != "queued" {
		t.Errorf("beside a job of a higher class: %+v", j)
	}

	s.site.KillScheduler()
	s.scheduler("p", plain)
	s.ends("urgent", "done")
	exact := testkit.Need(spark.CountWords(big))(t)
	if a := s.answer(high.ID, 1); a.Kept != a.Total || spark.MeanError(exact, a.Counts(), 20) != 0 {
		t.Errorf("%+v", a)
	}

	s.underway("reports", 2)
	var ignored struct{}
	testkit.Check(t, s.command(&ignored, "scheduler", "cancel", low.ID, "--addr", s.site.Scheduler(), "--reason", "test"))
	s.ends("reports", "cancelled")
	s.await("executors are left", func() bool { return s.Executors() == 0 })
	if apps, err := s.Cores(s.ctx); err != nil || len(apps) > 0 {
		t.Errorf("left of the driver: %v, %v", apps, err)
	}

	s.site.KillScheduler()
	s.scheduler("da", "[{name: high}, {name: low, theta: 25%}]")
	thin := s.submit("thin", "low", small, 8)
	j := s.ends("thin", "done")
	a := s.answer(thin.ID, 1)
	if a.Theta != 0.25 || a.Kept != kept(a.Total, 0.25) || j.Dropped != a.Total-a.Kept {
		t.Errorf("%+v kept %d of %d at %v", j, a.Kept, a.Total, a.Theta)
	}
	s.committed(thin.ID)
}

// committed checks that the coordinators have the job's ratio.
func (s *site) committed(id string) {
	s.Helper()
	var answer struct {
		Items []struct {
			Deflation *struct{ Theta float64 }
		}
	}
	err := s.command(&answer, "coordinator", "job", "show", id, "--addr", s.site.Addresses()[0])
	if err != nil || len(answer.Items) != 1 || answer.Items[0].Deflation == nil || answer.Items[0].Deflation.Theta != 0.25 {
		s.Errorf("%+v, %v", answer, err)
	}
}
