// Claims: what nodes count is shared out once, completely and in proportion to the CPU time of
// jobs where it is known of all of them, and to containers otherwise;
// what is not measured is time and no joules: silence, a new process, a node that cannot
// count, a count that cannot be; nothing of it is lost over any story.
package energy_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/jobs/energy"
	"headroom/units"
)

// plant is a node that draws and counts.
type plant struct {
	c energy.Counter
}

func newPlant() *plant {
	return &plant{energy.Counter{Process: 1, Counts: true, From: "packages", Most: 300 * units.Watt}}
}

// run draws so many watts for a second and reports.
func (p *plant) run(now time.Duration, watts float64) energy.Counter {
	p.c.Energy += units.FromJoules(watts)
	p.c.Time += time.Second
	p.c.At = now
	return p.c
}

func job(id, class string, on map[string]int) energy.Job {
	return energy.Job{ID: id, Class: class, On: on}
}

func joules(t *testing.T, b *energy.Book, id string) float64 {
	t.Helper()
	u, ok := b.Job(id)
	if !ok {
		t.Fatalf("job %s is unknown", id)
	}
	return u.Energy.Joules()
}

// Two jobs with 3 and 1 containers share a node's 200 W for 10 s; then one has it alone;
// then it is idle.
func TestShares(t *testing.T) {
	t.Parallel()
	b, p := &energy.Book{}, newPlant()
	both := []energy.Job{job("a", "high", map[string]int{"n1": 3}), job("b", "low", map[string]int{"n1": 1})}
	now := time.Duration(0)
	look := func(watts float64, jobs ...energy.Job) {
		now += time.Second
		b.Look(now, map[string]energy.Counter{"n1": p.run(now, watts)}, jobs)
	}
	look(200, both...) // what was drawn before the first look is nobody's
	for range 10 {
		look(200, both...)
	}
	if a, other := joules(t, b, "a"), joules(t, b, "b"); a != 1500 || other != 500 {
		t.Errorf("a %v J, b %v J; want 1500 and 500", a, other)
	}
	look(100, both[1]) // a ended within this second: half of its containers count
	if a, other := joules(t, b, "a"), joules(t, b, "b"); a != 1560 || other != 540 {
		t.Errorf("a %v J, b %v J; want 1560 and 540", a, other)
	}
	look(100, both[1])
	look(100)
	look(50)
	idle, nobodys := b.Idle()
	if idle.Energy.Joules() != 50 || nobodys != 0 || joules(t, b, "b") != 740 {
		t.Errorf("idle %v, nobody's %v, b %v J", idle.Energy, nobodys, joules(t, b, "b"))
	}
	u, _ := b.Job("b")
	if u.Measured != 13*time.Second || u.Unknown != 0 || u.Since != time.Second || !slices.Equal(u.From, []string{"packages"}) {
		t.Errorf("%+v", u)
	}
	if c := b.Classes(); c["high"].Energy.Joules() != 1560 || c["low"].Energy.Joules() != 740 {
		t.Errorf("classes %+v", c)
	}
	if u, ok := b.Final("b", now+time.Second); !ok || u.Energy.Joules() != 740 || u.Unknown != 0 {
		t.Errorf("finally %+v", u)
	}
	b.Keep(func(id string) bool { return id == "a" })
	if _, ok := b.Job("b"); ok || b.Classes()["low"].Energy.Joules() != 740 {
		t.Error("a forgotten job is still known, or its class has lost it")
	}
}

// Each of these is time that nobody measured, and no joules.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *energy.Counter){
		"a new process":          func(c *energy.Counter) { c.Process++ },
		"a node without a count": func(c *energy.Counter) { c.Counts = false },
		"a count that fell":      func(c *energy.Counter) { c.Energy = 0 },
		"a count of a megawatt":  func(c *energy.Counter) { c.Energy += units.FromJoules(1e6) },
		"a count without time":   func(c *energy.Counter) { c.Time = time.Second },
		"a time that fell":       func(c *energy.Counter) { c.Time = 0 },
		"power that is unknown":  func(c *energy.Counter) { c.Energy, c.Time = units.FromJoules(100), time.Second },
	} {
		b, p := &energy.Book{}, newPlant()
		jobs := []energy.Job{job("a", "low", map[string]int{"n1": 2})}
		b.Look(time.Second, map[string]energy.Counter{"n1": p.run(time.Second, 100)}, jobs)
		c := p.run(2*time.Second, 100)
		change(&c)
		b.Look(2*time.Second, map[string]energy.Counter{"n1": c}, jobs)
		u, _ := b.Job("a")
		if u.Energy != 0 || u.Measured != 0 || u.Unknown != time.Second {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

// A job that has run before it is first seen, under another leader, has run unmeasured.
func TestRanBefore(t *testing.T) {
	t.Parallel()
	b, p := &energy.Book{}, newPlant()
	jobs := []energy.Job{{ID: "a", Class: "low", On: map[string]int{"n1": 2, "n2": 1}, Ran: 30 * time.Second}}
	for now := time.Second; now <= 3*time.Second; now += time.Second {
		c := p.run(now, 100)
		b.Look(now, map[string]energy.Counter{"n1": c, "n2": c}, jobs)
		jobs[0].Ran += time.Second
	}
	if u, _ := b.Job("a"); u.Unknown != time.Minute || u.Measured != 4*time.Second || u.Energy.Joules() != 400 {
		t.Errorf("%+v", u)
	}
}

// A silent node's time is unknown from its last report on, and what it had counted meanwhile
// is nobody's. One that is never heard is unknown all the time.
func TestSilence(t *testing.T) {
	t.Parallel()
	b, p := &energy.Book{}, newPlant()
	jobs := []energy.Job{job("a", "low", map[string]int{"n1": 2, "n9": 1})}
	b.Look(time.Second, map[string]energy.Counter{"n1": p.run(time.Second, 100)}, jobs)
	old := p.run(2*time.Second, 100)
	for now := 2 * time.Second; now <= 20*time.Second; now += time.Second {
		b.Look(now, map[string]energy.Counter{"n1": old}, jobs)
		if now > 2*time.Second {
			p.run(now, 100)
		}
	}
	u, _ := b.Job("a")
	if u.Energy.Joules() != 100 || u.Measured != time.Second || u.Unknown < 30*time.Second {
		t.Errorf("while it is silent %+v", u)
	}
	b.Look(21*time.Second, map[string]energy.Counter{"n1": p.run(21*time.Second, 100)}, jobs)
	b.Look(22*time.Second, map[string]energy.Counter{"n1": p.run(22*time.Second, 100)}, jobs)
	u, _ = b.Job("a")
	if _, nobodys := b.Idle(); u.Energy.Joules() != 200 || nobodys.Joules() != 1900 {
		t.Errorf("afterwards %+v, nobody's %v", u, nobodys)
	}
	if u, _ := b.Final("a", 23*time.Second); u.Measured+u.Unknown != 44*time.Second {
		t.Errorf("measured %v, unknown %v; it ran 22 s on two nodes", u.Measured, u.Unknown)
	}
}

// Over any story all joules that were counted between two believed reports are somebody's,
// once; time on a node is measured or unknown, once; nothing falls.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := &energy.Book{}
		plants := map[string]*plant{"n1": newPlant(), "n2": newPlant(), "n3": newPlant()}
		told, first := map[string]energy.Counter{}, map[string]units.Energy{}
		var before units.Energy
		for i := range rapid.IntRange(2, 60).Draw(t, "seconds") {
			now := time.Duration(i+1) * time.Second
			for _, name := range []string{"n1", "n2", "n3"} {
				c := plants[name].run(now, rapid.Float64Range(0, 300).Draw(t, "watts"))
				if i == 0 || !rapid.Bool().Draw(t, "lost") {
					told[name] = c
				}
				if i == 0 {
					first[name] = c.Energy
				}
			}
			var jobs []energy.Job
			for j := range rapid.IntRange(0, 4).Draw(t, "jobs") {
				on := map[string]int{}
				for _, name := range []string{"n1", "n2", "n3"} {
					on[name] = rapid.IntRange(0, 3).Draw(t, "containers")
				}
				jobs = append(jobs, job(fmt.Sprint("j", j), fmt.Sprint("c", j%2), on))
			}
			b.Look(now, told, jobs)
			var shared, counted units.Energy
			for _, u := range b.Classes() {
				shared += u.Energy
			}
			idle, nobodys := b.Idle()
			shared += idle.Energy + nobodys
			for name := range plants {
				counted += told[name].Energy - first[name]
			}
			if shared != counted || shared < before {
				t.Fatalf("after %v: %v shared, %v counted, %v before", now, shared, counted, before)
			}
			before = shared
		}
	})
}

// Of two jobs with equally many containers, one uses three times the CPU time. Without the figure of one of them, and in
// the second in which one ends or begins anew, containers decide.
func TestSharesByCPUTime(t *testing.T) {
	t.Parallel()
	b, p := &energy.Book{}, newPlant()
	now := time.Duration(0)
	spent := map[string]float64{"a": 700, "b": 30} // before anybody looked
	look := func(more map[string]float64) {
		now += time.Second
		var jobs []energy.Job
		for _, id := range []string{"a", "b"} {
			j := job(id, "low", map[string]int{"n1": 2})
			if cpu, known := more[id]; known {
				spent[id] += cpu
				j.CPU = map[string]float64{"n1": spent[id]}
			}
			jobs = append(jobs, j)
		}
		b.Look(now, map[string]energy.Counter{"n1": p.run(now, 100)}, jobs)
	}
	take := func(what string, want float64, more map[string]float64) {
		t.Helper()
		before, all := joules(t, b, "a"), joules(t, b, "a")+joules(t, b, "b")
		look(more)
		if got := joules(t, b, "a") - before; math.Abs(got-want) > 0.01 {
			t.Errorf("%s: a has %v J of it, want %v", what, got, want)
		}
		if now := joules(t, b, "a") + joules(t, b, "b"); math.Abs(now-all-100) > 1e-6 {
			t.Errorf("%s: %v J were shared out of 100", what, now-all)
		}
	}
	look(map[string]float64{"a": 1.5, "b": 0.5})
	for range 5 {
		take("both known", 75, map[string]float64{"a": 1.5, "b": 0.5})
	}
	take("one unknown", 50, map[string]float64{"a": 1.5})
	take("known again", 50, map[string]float64{"a": 1.5, "b": 0.5}) // since when is unknown
	take("both known", 75, map[string]float64{"a": 1.5, "b": 0.5})
	spent["a"] = 0
	take("begun anew", 50, map[string]float64{"a": 1.5, "b": 0.5})
	take("not a number", 50, map[string]float64{"a": math.NaN(), "b": 0.5})
}
