// Claims: an application master that tells how its map tasks stand hears what the policies of package speculation
// decide (the worked examples of the GRASS paper); a job's promise follows from its deadline, its error and its floor; a
// node's cap counts; a job that has what it promised is told so; nonsense is refused in words.
package yarn

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/speculation"
	"headroom/scheduler/profiles"
)

// fig1 is the paper's first example at t = 1, with the tasks numbered from 0: map 1 took 1 s for a
// byte, map 0 is half done after 5 s (t_rem 5, t_new 2), and maps 2 to 8 wait (t_new 1, the last 3).
func fig1(policy string) string {
	var waiting []string
	for i := 2; i < 8; i++ {
		waiting = append(waiting, fmt.Sprintf(`{"task":%d,"bytes":1}`, i))
	}
	return fmt.Sprintf(`{"policy":%q,"slots":1,"waiting":[%s,{"task":8,"bytes":3}],`+
		`"running":[{"task":0,"bytes":2,"copies":1,"progress":0.5,"elapsed_ms":5000,"since_ms":0,"node":"n1:1"}],`+
		`"done":[{"task":1,"bytes":1,"took_ms":1000}]}`, policy, strings.Join(waiting, ","))
}

// onlyRunning is a job whose last map runs: t_rem 5, t_new 4.
func onlyRunning(policy string) string {
	return fmt.Sprintf(`{"policy":%q,"slots":1,"waiting":[],"running":[{"task":1,"bytes":4,"copies":1,"progress":0.5,"elapsed_ms":5000,"since_ms":0,"node":"n1:1"}],`+
		`"done":[{"task":0,"bytes":1,"took_ms":1000}]}`, policy)
}

func TestMasterHearsThePolicies(t *testing.T) {
	t.Parallel()
	const nothing, launch2, copy0 = `{"actions":[]}`, `{"actions":[{"kind":"launch","task":2}]}`, `{"actions":[{"kind":"copy","task":0}]}`
	for _, c := range []struct{ name, body, want string }{
		{"gs", fig1("gs"), launch2},
		{"ras", fig1("ras"), copy0},
		{"none", fig1("none"), launch2},
		{"late", fig1("late"), launch2},
		{"grass", fig1("grass"), copy0},
		{"ours", fig1("ours"), copy0},
		{"introduction gs", onlyRunning("gs"), `{"actions":[{"kind":"copy","task":1}]}`},
		{"introduction ras", onlyRunning("ras"), nothing},
		{"nothing has ended", `{"policy":"gs","slots":1,"waiting":[{"task":0,"bytes":1}],"running":[],"done":[]}`, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				a := l.plant.submit("root.q1", 9, 1)
				l.plant.with(func() { a.conf[propertyDeadline] = "16s" }) // 6 s pass until it is asked for
				l.start()
				l.pass(6 * time.Second)
				l.want("POST", "/v1/jobs/"+l.plant.job(a)+"/speculate", c.body, 200, c.want)
				if d := l.engine.Details(l.plant.id(a)); len(d) != 1 || d[0].GetSpeculation() == "" {
					l.Errorf("nothing is said of it: %v", d)
				}
			})
		})
	}
}

func TestPromise(t *testing.T) {
	t.Parallel()
	tasks := make([]speculation.Task, 20)
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name     string
		floor    float64
		deadline time.Duration
		error    string
		want     speculation.Bound
	}{
		{"all", 1, 0, "", speculation.Bound{Ceil: true}},
		{"all by a deadline are all", 1, time.Minute, "", speculation.Bound{Ceil: true}},
		{"floor", 0.8, 0, "", speculation.Bound{Error: 0.2, Ceil: true}},
		{"floor by a deadline", 0.8, time.Minute, "", speculation.Bound{ByDeadline: true, Left: 40 * time.Second}},
		{"past the deadline", 0.8, 10 * time.Second, "", speculation.Bound{Error: 0.2, Ceil: true}},
		{"error before the deadline", 0.8, time.Minute, "20%", speculation.Bound{Error: 0.2, Ceil: true}},
	} {
		j := newJob(app{started: now.Add(-20 * time.Second)}, profiles.Bound{Fraction: c.floor})
		j.tasks, j.terms.deadline, j.demand = 20, c.deadline, demand{}
		if c.error != "" {
			j.terms.error, _ = demand{propertyError: c.error}.error()
		}
		got := j.promise(now, tasks)
		if got.ByDeadline != c.want.ByDeadline || got.Left != c.want.Left || got.Need(20) != c.want.Need(20) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	j := newJob(app{started: now}, profiles.Bound{Fraction: 0.9})
	j.tasks, j.demand = 20, demand{}
	if got := j.promise(now, tasks[:19]); got.Need(19) != 18 {
		t.Errorf("of 20 tasks one was dropped: %d of 19 are needed, want 18", got.Need(19))
	}
}

// A capped node is slow before its tasks show it: the policy that knows caps copies its task.
func TestCapsCountInSpeculation(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		a := l.plant.submit("root.q2", 2, 1) // all of its maps are needed
		l.start()
		l.pass(6 * time.Second)
		path := "/v1/jobs/" + l.plant.job(a)
		for _, node := range []string{"n1", "n2", "n3"} {
			l.engine.Cap(&headroomv1.CapDirective{Node: node, CapUw: 200, MaxUw: 200})
		}
		body := strings.Replace(onlyRunning("ours"), `"bytes":4`, `"bytes":6`, 1) // t_rem 5, t_new 6
		l.want("POST", path+"/speculate", body, 200, `{"actions":[]}`)
		l.pass(time.Second)
		l.engine.Cap(&headroomv1.CapDirective{Node: "n1", CapUw: 40, MaxUw: 200})
		late := strings.Replace(body, `"since_ms":0`, `"since_ms":500`, 1)
		l.want("POST", path+"/speculate", late, 200, `{"actions":[{"kind":"copy","task":1}]}`)
	})
}

func TestReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		conf  map[string]string
		after time.Duration // 4 of 40 maps of 4 s run at a time
		stop  bool
		want  string
	}{
		{"error, floor not done", map[string]string{propertyError: "50%"}, 14 * time.Second, true, `"over":false`},
		{"error, floor done", map[string]string{propertyError: "50%"}, 36 * time.Second, true, `"over":true`},
		{"deadline ahead", map[string]string{propertyDeadline: "1h"}, 36 * time.Second, true, `"over":false`},
		{"deadline past", map[string]string{propertyDeadline: "20s"}, 36 * time.Second, true, `"over":true`},
		{"deadline past, floor not done", map[string]string{propertyDeadline: "10s"}, 14 * time.Second, true, `"over":false`},
		{"nothing may be dropped", map[string]string{propertyError: "50%"}, 36 * time.Second, false, `"over":false`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inLab(t, func(l *lab) {
				a := l.plant.submit("root.q1", 40, 1)
				l.plant.with(func() {
					maps.Copy(a.conf, c.conf)
				})
				l.start()
				l.pass(c.after)
				if c.stop {
					l.stopJob(l.plant.id(a), 40, 20)
				}
				code, got := l.ask("GET", "/v1/jobs/"+l.plant.job(a)+"/stop", "")
				if over := strings.Contains(got, `"over":true`); code != 200 || over != (c.want == `"over":true`) {
					l.Errorf("%d %s, want %s", code, got, c.want)
				}
			})
		})
	}
}

func TestSpeculateRefuses(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, _, path := started(l, 9)
		for _, c := range [][2]string{
			{`{"slots":1}`, "policy"},
			{`{"policy":"oracle","slots":1}`, "policy"},
			{`{"policy":"gs"}`, "slots"},
			{`{"policy":"gs","slots":-1}`, "slots"},
			{`{"policy":"gs","slots":1,"waiting":[{"bytes":1}]}`, "number"},
			{`{"policy":"gs","slots":1,"running":[{"task":1,"progress":2}]}`, "progress"},
			{`{"policy":"gs","slots":1,"running":[{"task":1,"elapsed_ms":-1}]}`, "times"},
			{`{"policy":"gs","slots":1,"running":[{"task":1,"copies":5000}]}`, "copies"},
			{`{"policy":"gs","slots":1,"done":[{"task":1,"took_ms":9000000000000000}]}`, "times"},
			{`{"policy":"gs","slots":1,"waiting":[{"task":1}],"done":[{"task":1,"took_ms":1}]}`, "IDs"},
			{`{"policy":"gs","slots":1,"waiting":[{"task":100000}]}`, "number"},
		} {
			if code, got := l.ask("POST", path+"/speculate", c[0]); code != 400 || !strings.Contains(got, c[1]) {
				l.Errorf("%s: %d %s, want 400 and %q", c[0], code, got, c[1])
			}
		}
		l.want("POST", "/v1/jobs/job_1_0001/speculate", fig1("gs"), 404, "")
	})
}
