// Claim: an arbiter that gets what admission has promised serves jobs with deadlines no worse than one that does not, by the
// objective and by the deadlines of the jobs that were promised something.
package arbitration

import (
	"math"
	"testing"

	"headroom/jobs/arbiter"

	"headroom/internal/testkit"
)

// doorTask is about how long a task of the loads takes at full speed, s.
const doorTask = 10

// door promises containers to jobs with deadlines as they come, as many as they are expected to need, while there are any.
type door struct {
	containers int
	promised   map[string]int
	told       bool
}

// edit gives the arbiter the promises.
func (d *door) edit(look *arbiter.Look) {
	free, live := d.containers, map[string]bool{}
	for i := range look.Jobs {
		free -= d.promised[look.Jobs[i].ID]
		live[look.Jobs[i].ID] = true
	}
	for i := range look.Jobs {
		c := &look.Jobs[i]
		if _, asked := d.promised[c.ID]; !asked && c.Deadline > 0 {
			left := (c.Deadline - c.Elapsed).Seconds()
			need := int(math.Ceil(float64(c.Tasks) * doorTask / atBase / max(1, 0.8*left)))
			if need > free {
				need = 0
			}
			d.promised[c.ID] = need
			free -= need
		}
		if d.told {
			c.Promised = d.promised[c.ID]
		}
	}
}

// oneClass is the load of many sizes with all jobs in one class: those with deadlines come behind large ones that came before.
func oneClass() Load {
	l := Loads()[3]
	l.Name, l.Jobs = "one class", func(seed uint64) []Job {
		jobs := mixed(seed)
		for i := range jobs {
			jobs[i].Class = Tolerant
		}
		return jobs
	}
	return l
}

func TestPromisesCostNothing(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	const seeds = 4
	for _, l := range []Load{oneClass(), Loads()[2], Loads()[3]} {
		var weighed, missed [2]float64 // without and with promises
		promises := 0
		for seed := range uint64(seeds) {
			for told := range 2 {
				d := &door{containers: l.Containers, promised: map[string]int{}, told: told == 1}
				r := newRun(&l, 9100+seed, &joint{tweak: tweak{shared: true, edit: d.edit}})
				if !r.run() {
					t.Fatalf("%s: jobs have not ended", l.Name)
				}
				weighed[told] += r.figures()[WeightedS] / seeds
				for _, j := range r.jobs {
					if d.promised[j.id] > 0 {
						promises += told
						if j.end-j.Arrival > j.Deadline {
							missed[told]++
						}
					}
				}
			}
		}
		t.Logf("%s: %d promises; without and with them %v deadlines are missed, %.3f weighted seconds a job", l.Name, promises, missed, weighed)
		if promises < 100 || missed[1] > missed[0] || weighed[1] > 1.005*weighed[0] {
			t.Errorf("%s: promises make it worse", l.Name)
		}
		if l.Name == "one class" && missed[1] >= missed[0] {
			t.Errorf("%s: promises keep no deadline that would be missed without them", l.Name)
		}
	}
}
