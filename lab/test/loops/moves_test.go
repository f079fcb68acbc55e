// Claim: the moves of jobs, each 5 s, keep apart from the loops below them: a job whose
// deadline is threatened sprints a few times and meets it, whatever flickers; no other node's
// cap swings by that, and no budget is exceeded.
package loops_test

import (
	"fmt"
	"testing"
	"time"

	"headroom/jobs/arbiter"
	"headroom/ledger"
	"headroom/progress"
	"headroom/units"
)

// sprinter is a job on the first two machines, looked at by the movers.
type sprinter struct {
	l          *loops
	movers     arbiter.Movers
	nodes      []string
	left       float64 // s at full speed of both machines
	began      time.Duration
	deadline   time.Duration
	slow, fast float64 // speeds as last seen, of both machines together
	sprints    int
	ends       int
}

// joules is the capacity of the sprint budget.
const joules = 20 * units.Kilojoule

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// speed is how fast the job goes now.
func (j *sprinter) speed() (sum float64) {
	for _, m := range j.l.machines[:2] {
		sum += m.plant.Speed() * m.util / 2
	}
	return sum
}

// open is the job's sprint, empty without one.
func (j *sprinter) open() string {
	for _, p := range j.l.state.SprintsByTime() {
		if p.Open() && p.Ended == "" {
			return p.ID
		}
	}
	return ""
}

// look is what the coordinators' job loop does.
func (j *sprinter) look() {
	l := j.l
	elapsed := l.now - j.began
	if now := j.speed(); j.open() == "" {
		j.slow = now
	} else if l.machines[0].sprint != "" {
		j.fast = now
	}
	ends := func(speed float64) progress.Finish {
		at := elapsed + secondsOf(j.left/speed)
		return progress.Finish{At: at, Low: at * 9 / 10, High: at * 11 / 10, Known: speed > 0}
	}
	o := ledger.OfferSprint(l.state, j.nodes, "")
	c := arbiter.Contender{
		ID: "j", Tasks: 100, Running: 2, Pending: 98, Floor: 1, Elapsed: elapsed, Run: 1, Deadline: j.deadline, MaySprint: true, Sprint: j.open(),
		On: map[string]int{j.nodes[0]: 1, j.nodes[1]: 1},
		Outlook: arbiter.Outlook{
			Slow: ends(j.slow), Fast: ends(max(j.fast, 1.2*j.slow)), Speed: max(j.fast/j.slow, 1.2),
			Rest: progress.Rest{Work: j.left, Task: secondsOf(2 / j.slow), Ended: int(200 - j.left), Known: true},
		},
		Offer: arbiter.Offer{Domain: o.Domain, Balance: o.Balance, Capacity: joules, Rise: o.Rise, Nodes: len(o.Caps), Why: o.Why},
	}
	out := j.movers.Step(l.now, arbiter.Look{Jobs: []arbiter.Contender{c}, Joint: true})
	for _, e := range out.Ends {
		j.ends++
		l.apply(ledger.Command{EndSprint: &ledger.EndSprint{ID: e.Sprint, Why: e.Why}})
	}
	for _, g := range out.Grants {
		j.sprints++
		l.apply(ledger.Command{Sprint: &ledger.GrantSprint{ID: fmt.Sprint("s", j.sprints), Job: "j", Domain: g.Domain, Duration: g.Duration, Caps: o.Caps}})
	}
}

func TestMovesKeepApart(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.05} {
		t.Run(fmt.Sprintf("flicker of %.0f %%", 100*noise), func(t *testing.T) {
			t.Parallel()
			l := newLoops(t, 4, 1000*units.Watt, asDesigned())
			l.noise = noise
			l.run(time.Minute)
			base := 140 * units.Watt
			for _, n := range []string{"n01", "n02"} { // its nodes are kept below what they can do
				l.apply(ledger.Command{Node: &ledger.SetNode{Node: n, Settings: ledger.Settings{Max: &base}}})
			}
			l.apply(ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: joules, Refill: 100 * units.Watt}})
			l.run(3 * time.Minute)
			l.forget()
			j := &sprinter{l: l, nodes: []string{"n01", "n02"}, left: 200, began: l.now}
			j.deadline = secondsOf(0.9 * j.left / j.speed())
			for j.left > 0 && l.now-j.began < 20*time.Minute {
				if (l.now-j.began)%jobs == 0 {
					j.look()
				}
				l.run(node)
				j.left -= j.speed() * node.Seconds()
				if sum := l.state.Totals()["site/lab"]; sum.Headroom() < 0 {
					t.Fatalf("at %v: %v are charged of %v", l.now, sum.Reserved, sum.Budget)
				}
			}
			took := l.now - j.began
			if took > j.deadline*21/20 {
				t.Errorf("it took %v, its deadline was %v; %d sprints", took, j.deadline, j.sprints)
			}
			// A sprint lasts 10 s or more and takes more than the 100 W that come back.
			if most := 1 + int(took/(20*time.Second)); j.sprints == 0 || j.sprints > most || j.ends > 0 {
				t.Errorf("%d sprints, %d ended, in %v", j.sprints, j.ends, took)
			}
			others := &loops{machines: l.machines[2:]}
			if moves, turns := others.worst(took); moves > movesMost || noise == 0 && turns > 0 {
				t.Errorf("the others: %.1f moves and %.1f turns a minute: %v", moves, turns, l)
			}
			t.Logf("%v of %v, %d sprints, %d ended before their time", took, j.deadline, j.sprints, j.ends)
		})
	}
}
