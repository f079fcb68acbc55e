package arbitration

import (
	"cmp"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

// order is how free containers are handed out.
type order int

const (
	byShare      order = iota // CAB: to the job furthest below its share, or its equal part
	byShareBelow              // the urgent first, and CAB for the others with what that leaves
	byClass                   // the urgent first, equal parts inside a class
	byTurn                    // the urgent first, and in a class who came first
	oneByOne                  // one job at a time: the first of the highest class, to its end
)

// baseline is a way to decide that is none of ours.
type baseline struct {
	order   order
	timer   time.Duration // an urgent job's machines sprint so long after its arrival
	spend   bool          // tolerant jobs sprint too
	theta   float64       // the part of their tasks that tolerant jobs give up, as far as their floors leave
	arbiter arbiter.Arbiter
	one     *job
}

func compareClass(a, b *job) int { return cmp.Compare(a.Class.rank(), b.Class.rank()) }

func (b *baseline) pick(r *run) *job {
	switch b.order {
	case byShare:
		return deficit(r.live, r.load.Containers)
	case byShareBelow:
		j := first(r.live, compareClass)
		if j == nil || j.Class != Urgent {
			j = deficit(r.live, r.load.Containers)
		}
		return j
	case byClass:
		return first(r.live, func(x, y *job) int { return cmp.Or(compareClass(x, y), cmp.Compare(len(x.running), len(y.running))) })
	case byTurn:
		return first(r.live, compareClass)
	case oneByOne:
		if b.one == nil || b.one.end > 0 {
			b.one = first(r.live, compareClass)
		}
		if b.one != nil && b.one.pending() > 0 {
			return b.one
		}
	}
	return nil
}

// first returns the first by an order of the jobs with tasks to begin.
func first(jobs []*job, order func(x, y *job) int) *job {
	var out *job
	for _, j := range jobs {
		if j.open() && (out == nil || order(j, out) < 0) {
			out = j
		}
	}
	return out
}

// deficit returns the job furthest below its share, or its equal part. Containers that all shares leave idle go to who is least above.
func deficit(jobs []*job, containers int) *job {
	below := func(j *job) int {
		want := j.share
		if want == 0 {
			want = containers / len(jobs)
		}
		return want - len(j.running)
	}
	return first(jobs, func(x, y *job) int { return cmp.Compare(below(y), below(x)) })
}

func (b *baseline) look(r *run) {
	if b.theta > 0 {
		for _, j := range r.live {
			if j.Class == Tolerant && j.theta == 0 {
				j.theta = b.theta
				r.drop(j, len(j.times)-units.Ratio(1-b.theta).Kept(len(j.times)))
			}
		}
	}
	if b.order <= byShareBelow {
		b.divide(r)
	}
	if r.sprint == nil {
		b.sprint(r)
	}
}

// sprint lets the first job sprint whose timer is due: of the urgent ones first, and to its end as far as joules go.
func (b *baseline) sprint(r *run) {
	jobs := slices.Clone(r.live)
	slices.SortStableFunc(jobs, compareClass)
	for _, j := range jobs {
		due := j.Arrival + b.timer
		if len(j.running) == 0 || !b.spend && j.Class != Urgent {
			continue
		}
		if due > r.now() {
			if r.wake == 0 || due < r.wake {
				r.wake = due
			}
			continue
		}
		if watts := rise(r.nodesOf(j)).Watts(); watts > 0 && r.pot >= sprintLeast*watts {
			r.begin(j, seconds(r.pot/watts))
			return
		}
	}
}

// divide is CAB's turn: stretch and early stops.
func (b *baseline) divide(r *run) {
	containers := r.load.Containers
	served := func(j *job) bool { return b.order == byShareBelow && j.Class == Urgent }
	for _, j := range r.live {
		if served(j) {
			containers = max(1, containers-len(j.running)-j.pending())
		}
	}
	d, by := r.step(&b.arbiter, containers, false, served)
	if d.Changed {
		told := map[string]int{}
		for _, s := range d.Shares {
			told[s.ID] = s.Containers
		}
		r.clock.Schedule(r.now()+lag, rankLater, func() {
			for _, j := range r.live {
				j.share = told[j.id]
			}
		})
	}
	for _, s := range d.Stops {
		j := by[s.ID]
		j.stopped = true
		r.drop(j, s.Tasks-s.MinTasks-j.dropped)
	}
}

// step lets the job loop decide about the jobs that have begun, but for those that are served first anyway.
func (r *run) step(a *arbiter.Arbiter, containers int, joint bool, first func(*job) bool) (arbiter.Decision, map[string]*job) {
	in, by := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: containers}, map[string]*job{}
	in.Settings.Joint = joint
	for _, j := range r.reports {
		in.Ended = append(in.Ended, arbiter.Ended{ID: j.id, Runtime: j.end - j.first})
	}
	for _, j := range r.live {
		if by[j.id] = j; j.began && !first(j) {
			in.Jobs = append(in.Jobs, r.reported(j, joint))
		}
	}
	d := a.Step(r.now(), in)
	for _, u := range d.Uncapped {
		by[u.ID].uncapped = u.At
	}
	return d, by
}

func (r *run) reported(j *job, ratio bool) arbiter.Job {
	mean := func(of func(n *node) units.Power) (sum units.Power) {
		for _, a := range j.running {
			sum += of(a.node) * perServer / units.Power(a.node.containers)
		}
		return sum / units.Power(max(1, len(j.running)))
	}
	return arbiter.Job{
		ID: j.id, Name: cmp.Or(j.Name, string(j.Class)), Curve: j.curve, Tasks: len(j.times), Done: j.done, Running: len(j.running), Pending: j.pending(), Dropped: j.dropped, Work: j.work(),
		Phase: progress.Map, Reduced: -1, Elapsed: max(1, r.now()-j.first), Floor: j.Floor, Uncapped: j.uncapped, Stopped: j.stopped, Held: len(j.running),
		Power: mean(func(n *node) units.Power { return n.cap }), Full: mean(func(n *node) units.Power { return n.rated }),
		Base: mean(func(n *node) units.Power { return n.base }), Fast: mean((*node).sprinting), ByRatio: ratio,
	}
}
