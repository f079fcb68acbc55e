// Claims: on Hadoop and Spark, too, every seed has jobs of all kinds; ours says what a job promises, the others' jobs know
// nothing of Headroom; the scheduler takes all of their configurations and files; attempts of a task are as slow in all
// variants; what an engine does not tell is absent; what YARN's door refused is a refused job.
package promises

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/lab/hadoop"
	"headroom/ledger"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
)

func TestEnginesJobs(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(quick bool) load{"yarn": yarnLoad, "spark": sparkLoad} {
		for _, quick := range []bool{true, false} {
			l := of(quick)
			for seed := range uint64(20) {
				jobs := l.jobs(seed)
				if len(jobs) != l.count || l.count%len(order()) != 0 {
					t.Fatalf("%s: %d jobs", name, len(jobs))
				}
				checkKinds(t, &l, jobs)
			}
		}
	}
}

func TestSchedulerTakesEngines(t *testing.T) {
	t.Parallel()
	section := map[string]func(v *variant) string{
		"yarn": func(v *variant) string { return yarnSection("http://127.1.2.254:8088", "127.0.0.1:7411", v) },
		"spark": func(*variant) string {
			return "spark: {home: /opt/spark, master: \"spark://127.1.2.254:7077\", plugin: /opt/hook.jar}\n"
		},
	}
	for name, variants := range map[string][]variant{"yarn": yarnVariants(), "spark": sparkVariants()} {
		for i, v := range variants {
			path := t.TempDir() + "/scheduler.yaml"
			testkit.WriteFile(t, path, "dev: true\nlisten: \"127.0.0.1:0\"\ndir: /tmp/s\ncoordinators: [\"127.0.0.1:1\"]\n"+v.configuration+section[name](&v))
			c := testkit.Need(scheduler.LoadConfig(path))(t)
			if len(c.Classes) != 2 || !slices.Contains(ledger.ContainerPolicies(), v.policy) || v.stock() != (i > 0) || (c.Admission.Policy == "off") != v.stock() || (c.Speculation.Policy == "none") != v.stock() {
				t.Errorf("%s, %s: %+v", name, v.name, c)
			}
			if name == "yarn" && (len(c.Yarn.Queues) != 2 || c.Yarn.Queues[0].Name != "root.promised" || c.Yarn.Queues[1].Class != "exact") {
				t.Errorf("%s: %+v", v.name, c.Yarn.Queues)
			}
		}
	}
}

func TestYARNJobs(t *testing.T) {
	t.Parallel()
	hooks, l := hadoop.Hooks{Jar: "/opt/hook.jar", Address: "127.0.0.1:7411", MasterMB: yarnUnit}, yarnLoad(true)
	for _, v := range yarnVariants() {
		for _, j := range l.jobs(1) {
			job := yarnJob(&j, &v, hooks, 1, "/in", "/out")
			set := job.Properties
			if job.Queue != j.kind.class() || set["headroom.apps.slow"] != j.draws(1) || set["yarn.app.mapreduce.am.resource.mb"] != "256" || set["mapreduce.map.speculative"] == "true" != v.stock() {
				t.Errorf("%s, %s: %+v", v.name, j.name, job)
			}
			if v.stock() {
				delete(set, "headroom.apps.slow")
				for name := range set {
					if strings.HasPrefix(name, "headroom.") || len(job.LibJars) > 0 {
						t.Errorf("%s: %s", v.name, name)
					}
				}
				continue
			}
			tagged := strings.Contains(set["mapreduce.job.tags"], fmt.Sprintf("headroom-deadline:%v,headroom-tasks:%d,headroom-queue", j.deadline, j.tasks))
			if tagged != j.kind.due() || (set["headroom.deadline"] != "") != j.kind.due() || (set["headroom.error"] != "") != (j.kind == bounded) || (set["headroom.min-tasks"] == "10%") != (j.kind == partial) || set["headroom.speculation"] != "ours" || set["headroom.url"] == "" {
				t.Errorf("%s: %+v", j.name, job)
			}
		}
	}
}

func TestSparkJobs(t *testing.T) {
	t.Parallel()
	l := sparkLoad(true)
	for _, v := range sparkVariants() {
		for _, j := range l.jobs(1) {
			f := testkit.Need(jobfile.Parse("/tmp/run/job.yaml", sparkSpec(&j, &v, 1, "/opt/head room/apps.jar", "/tmp/a run/in.xml"), []string{"promised", "exact"}))(t)
			promises := !v.stock()
			if f.Name != j.name || f.Slots != 4 || (f.Deadline != "") != (promises && j.kind.due()) || (f.Error != "") != (promises && j.kind == bounded) || (f.MinTasks != "") != (promises && j.kind == partial) {
				t.Errorf("%s: %+v", v.name, f)
			}
			if args := f.Spark.Args; args[0] != "/tmp/a run/in.xml" || args[1] != fmt.Sprint(j.tasks) || args[4] != j.draws(1) || f.Spark.Conf["spark.speculation"] == "true" != (v.name == stockBest) {
				t.Errorf("%s: %+v", v.name, f.Spark)
			}
		}
	}
}

func TestDraws(t *testing.T) {
	t.Parallel()
	j := job{name: "j00-exact-small", tasks: 4}
	all := strings.Split(j.draws(1), ";")
	if len(all) != attempts || j.draws(1) == j.draws(2) || all[0] == all[1] {
		t.Error(all)
	}
	for _, a := range all {
		if strings.Count(a, ",") != j.tasks-1 {
			t.Error(a)
		}
	}
}

// An engine that does not tell of wasted work has no figure of it, and counts no task that is not of the input.
func TestBlind(t *testing.T) {
	t.Parallel()
	w := newWatch([]job{{kind: bounded, error: 0.3, tasks: 10}})
	w.blind = true
	w.submit(0, "a", 0)
	look(t, w, second, doneState, &headroomv1.JobProgress{Done: 12, Dropped: 2, Containers: 4})
	f := w.figures()
	if _, known := f[figureWasted]; known || w.outcomes[0].done != 8 || f[figureBound] != 1 {
		t.Errorf("%v, %+v", f, w.outcomes[0])
	}
}

func TestRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	w := newWatch([]job{{kind: strict, tasks: 4, deadline: second}})
	w.submit(0, "a", 0)
	outcome := "failed: Headroom refuses application_1_0001: it needs 9 slots and can use 8"
	testkit.Check(t, w.look(second, &headroomv1.ListResponse{Jobs: []*headroomv1.Job{{Id: "a", State: headroomv1.JobState_JOB_STATE_FAILED, Outcome: outcome}}}))
	if o := &w.outcomes[0]; !o.refused || o.why != outcome || w.over != 1 {
		t.Errorf("%+v", o)
	}
}
