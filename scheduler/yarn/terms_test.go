// Claims: a job is served as its queue says, and as its owner asks where that takes less
// from others or the queue lets it; what cannot be taken is said in words, and never loses a
// job; what was agreed survives the scheduler; sprint timers run from the first task.
package yarn

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/config"
)

// three are classes, the highest first.
func three() []Class {
	return []Class{{Name: "high"}, {Name: "mid", Deadline: time.Hour}, {Name: "low"}}
}

// say is how a job is served, in one line.
func (t *terms) say() string {
	sprint := never
	if t.sprintAfter != nil {
		sprint = t.sprintAfter.String()
	}
	return fmt.Sprintf("%s %d, due %v, sprints %s, deflates %v", t.class, t.rank, t.deadline, sprint, t.deflate)
}

func TestTerms(t *testing.T) {
	t.Parallel()
	plain := Queue{Name: "root.q1"}
	mid := Queue{Name: "root.q1", Class: "mid", Deadline: config.Duration(10 * time.Minute), SprintAfter: "1m", Deflate: new(false)}
	open := mid
	open.Overrides = true
	own := func(pairs ...string) demand {
		d := demand{}
		for p := range slices.Chunk(pairs, 2) {
			d[p[0]] = p[1]
		}
		return d
	}
	for about, c := range map[string]struct {
		queue Queue
		own   demand
		want  string
		notes []string
	}{
		"nothing said":          {plain, own(), "low 2, due 0s, sprints never, deflates true", nil},
		"the queue says":        {mid, own(), "mid 1, due 10m0s, sprints 1m0s, deflates false", nil},
		"not read":              {plain, nil, "low 2, due 0s, sprints never, deflates false", nil},
		"the class's deadline":  {Queue{Name: "root.q1", Class: "mid"}, own(), "mid 1, due 1h0m0s, sprints never, deflates true", nil},
		"later than the class":  {Queue{Name: "root.q1", Class: "mid"}, own(propertyDeadline, "2h"), "mid 1, due 2h0m0s, sprints never, deflates true", nil},
		"a lower class":         {mid, own(propertyClass, "low"), "low 2, due 10m0s, sprints 1m0s, deflates false", nil},
		"the same class":        {mid, own(propertyClass, "mid"), "mid 1, due 10m0s, sprints 1m0s, deflates false", nil},
		"a higher class":        {mid, own(propertyClass, "high"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"headroom.class=high ignored: queue root.q1 has class mid"}},
		"a higher class, open":  {open, own(propertyClass, "high"), "high 0, due 10m0s, sprints 1m0s, deflates false", nil},
		"no such class":         {mid, own(propertyClass, "gold"), "low 2, due 10m0s, sprints 1m0s, deflates false", []string{"headroom.class=gold is not one of the classes (high, mid, low); running in the lowest class, low"}},
		"earlier":               {mid, own(propertyDeadline, "5m"), "mid 1, due 5m0s, sprints 1m0s, deflates false", nil},
		"later":                 {mid, own(propertyDeadline, "20m"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"headroom.deadline=20m ignored: queue root.q1 has deadline 10m0s"}},
		"later, open":           {open, own(propertyDeadline, "20m"), "mid 1, due 20m0s, sprints 1m0s, deflates false", nil},
		"a deadline of nothing": {mid, own(propertyDeadline, "0s"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"headroom.deadline=0s ignored: a deadline must be above 0s"}},
		"a deadline of ages":    {plain, own(propertyDeadline, "900000h"), "low 2, due 0s, sprints never, deflates true", []string{"at most 87600h"}},
		"a deadline of words":   {mid, own(propertyDeadline, "soon"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{`headroom.deadline=soon ignored: "soon": not a duration; write it as`}},
		"no unit":               {plain, own(propertyDeadline, "600"), "low 2, due 0s, sprints never, deflates true", []string{"a duration needs a unit; did you mean 600s?"}},
		"a later sprint":        {mid, own(propertySprint, "90s"), "mid 1, due 10m0s, sprints 1m30s, deflates false", nil},
		"an earlier sprint":     {mid, own(propertySprint, "0s"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"headroom.sprint-after=0s ignored: queue root.q1 has sprint_after 1m0s"}},
		"an earlier one, open":  {open, own(propertySprint, "0s"), "mid 1, due 10m0s, sprints 0s, deflates false", nil},
		"no sprint":             {mid, own(propertySprint, never), "mid 1, due 10m0s, sprints never, deflates false", nil},
		"a sprint of its own":   {plain, own(propertySprint, "90s"), "low 2, due 0s, sprints never, deflates true", []string{"has no sprint_after"}},
		"a sprint in words":     {mid, own(propertySprint, "-5s"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"must not be negative"}},
		"exact":                 {plain, own(propertyDeflate, "false"), "low 2, due 0s, sprints never, deflates false", nil},
		"not exact":             {mid, own(propertyDeflate, "true"), "mid 1, due 10m0s, sprints 1m0s, deflates false", []string{"has deflate false"}},
		"not exact, open":       {open, own(propertyDeflate, "true"), "mid 1, due 10m0s, sprints 1m0s, deflates true", nil},
		"perhaps":               {plain, own(propertyDeflate, "perhaps"), "low 2, due 0s, sprints never, deflates false", []string{"is neither true nor false"}},
		"all of it wrong": {
			mid, own(propertyDeflate, "?", propertySprint, "?", propertyDeadline, "?", propertyClass, strings.Repeat("x", 1000)),
			"low 2, due 10m0s, sprints 1m0s, deflates false",
			[]string{"not one of the classes", "headroom.deadline=?", "headroom.sprint-after=?", "neither true nor false"},
		},
	} {
		got := c.queue.terms(c.own, three())
		if got.say() != c.want || len(got.notes) != len(c.notes) {
			t.Errorf("%s: %s, %q; want %s, %q", about, got.say(), got.notes, c.want, c.notes)
			continue
		}
		for i, words := range c.notes {
			if !strings.Contains(got.notes[i], words) || len(got.notes[i]) > 2*textMax {
				t.Errorf("%s: said %q, want %q", about, got.notes[i], words)
			}
		}
	}
}

// What was agreed is committed with the job, shown, and there again after a restart, also when the
// queue says something else by then. What was not taken is said once.
func TestTermsAreCommitted(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.classes = three()
		l.cfg.Queues[0].Class, l.cfg.Queues[0].SprintAfter = "mid", "20s"
		a := l.plant.submit("root.q1", 40, 1)
		maps.Copy(a.conf, map[string]string{propertyClass: "high", propertyDeadline: "5m"})
		other := l.plant.submit("root.q2", 40, 1)
		l.start()
		l.pass(7 * time.Second)
		id := l.plant.id(a)
		j := l.log.job(id)
		if j.GetClass() != "mid" || j.GetRank() != 1 || j.GetDeadlineS() != 300 {
			l.Errorf("committed as %v", j)
		}
		if o := l.log.job(l.plant.id(other)); o.GetClass() != "low" || o.GetRank() != 2 || o.DeadlineS != nil {
			l.Errorf("the other was committed as %v", o)
		}
		var about description
		if err := json.Unmarshal(j.GetSpec(), &about); err != nil || len(about.Notes) != 1 || !strings.Contains(about.Notes[0], "headroom.class=high ignored") {
			l.Errorf("described as %s, %v", j.GetSpec(), err)
		}
		if p := l.progress(id); p.GetSprintAfterS() != 20 || p.GetSprintDue() {
			l.Errorf("progress %v", p)
		}
		l.stop()
		l.cfg.Queues[0].Class, l.cfg.Queues[0].SprintAfter = "", ""
		l.start()
		l.pass(18 * time.Second) // its first task began 3 s after it came
		if p := l.progress(id); p.GetSprintAfterS() != 20 || !p.GetSprintDue() {
			l.Errorf("after the restart, 22 s after its first task: %v", p)
		}
		if m := l.engine.List(id)[0]; m.GetClass() != "mid" || m.GetRank() != 1 || m.GetDeadlineS() != 300 {
			l.Errorf("listed as %v", m)
		}
		if n := strings.Count(l.said.String(), "some settings of a job were not applied"); n != 1 {
			l.Errorf("said %d times", n)
		}
	})
}

// A job without a timer of its own has the one of its class, as it is now.
func TestSprintTimerOfTheClass(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		l.classes = three()
		_, id, _ := started(l, 40)
		timed := func(after *float64) *headroomv1.JobProgress {
			jobs, _ := l.engine.Report([]*headroomv1.ClassPoint{{Name: "low", SprintAfterS: after}, {Name: "mid", SprintAfterS: new(1.0)}})
			return jobs[0]
		}
		if p := timed(nil); p.SprintAfterS != nil || p.GetSprintDue() {
			l.Errorf("%s has no timer: %v", id, p)
		}
		if p := timed(new(2.0)); p.GetSprintAfterS() != 2 || !p.GetSprintDue() {
			l.Errorf("%s is due: %v", id, p)
		}
		if p := timed(new(60.0)); p.GetSprintAfterS() != 60 || p.GetSprintDue() {
			l.Errorf("%s is not due: %v", id, p)
		}
	})
}

// A sprint is shown while it lasts.
func TestSprintIsShown(t *testing.T) {
	t.Parallel()
	inLab(t, func(l *lab) {
		_, id, _ := started(l, 40)
		l.engine.Sprint(&headroomv1.SprintDirective{Id: id, Sprint: "job/x/1", Nodes: []string{"n01"}, CapUw: 5, DurationMs: 1000})
		since := l.engine.Details(id)[0].GetSprint().GetSinceUs()
		l.pass(2 * time.Second)
		l.engine.Sprint(&headroomv1.SprintDirective{Id: id, Sprint: "job/x/1", Nodes: []string{"n01", "node2"}})
		if k := l.engine.Details(id)[0].GetSprint(); k.GetSinceUs() != since || len(k.GetNodes()) != 2 {
			l.Errorf("%v, since %d", k, since)
		}
		l.engine.Sprint(&headroomv1.SprintDirective{Id: id})
		l.engine.Sprint(&headroomv1.SprintDirective{Id: "application_1_0001", Sprint: "job/y/1"})
		if d := l.engine.Details("")[0]; d.GetSprint() != nil || len(l.engine.Details("other")) != 0 {
			l.Errorf("%v", d)
		}
	})
}
