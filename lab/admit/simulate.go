package admit

import (
	"math"
	"time"

	"headroom/jobs/admission"
)

// job is one job of a load, with what its tasks really take. Times are in seconds.
type job struct {
	user              string
	tasks             int
	arrival, deadline float64
	work              float64
}

// change is a capacity from a moment on.
type change struct {
	at    float64
	slots int
}

// load is what is simulated. Jobs and changes are in the order of their times.
type load struct {
	capacity int
	jobs     []job
	changes  []change
}

// ended is what became of one job.
type ended struct {
	verdict       admission.Verdict // Admitted, Queued (began later) or Refused
	start, finish float64           // of a job that ran
	got           float64           // slot-seconds
	met, ran      bool
	last          admission.Decision // the newest one that named the job
	first         float64            // slots at its start
	resized       bool
}

// outcome is a whole run.
type outcome struct {
	jobs      []ended
	fractions []float64
	most      float64 // the most slots held at once, in parts of the capacity
}

// epoch is when a simulation begins; only differences count.
var epoch = time.Unix(0, 0).UTC()

func at(s float64) time.Time { return epoch.Add(duration(s)) }

func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// run is one simulation: it drives the controller as a scheduler would, and lets jobs progress with perfect speed-up.
type run struct {
	load
	c       *admission.Controller
	now     float64
	out     outcome
	index   map[string]int
	names   []string
	left    []float64 // work left, s
	running []share
}

type share struct {
	job   int
	slots float64
}

// simulate lets a policy decide about a load.
func simulate(policy admission.Policy, l load) (*outcome, error) {
	c, err := admission.New(policy, l.capacity)
	if err != nil {
		return nil, err
	}
	r := &run{load: l, c: c, index: map[string]int{}}
	r.out.jobs = make([]ended, len(l.jobs))
	r.out.fractions = []float64{}
	for i, j := range l.jobs {
		r.names = append(r.names, name(i))
		r.index[r.names[i]] = i
		r.left = append(r.left, j.work)
	}
	if err := r.loop(); err != nil {
		return nil, err
	}
	return &r.out, nil
}

// loop goes from event to event. At one time, ends come before changes, changes before arrivals.
func (r *run) loop() error {
	arrivals, changes := 0, 0
	for {
		next, who := r.nextEnd()
		kind := 0
		if changes < len(r.changes) && r.changes[changes].at < next {
			next, kind = r.changes[changes].at, 1
		}
		if arrivals < len(r.jobs) && r.jobs[arrivals].arrival < next {
			next, kind = r.jobs[arrivals].arrival, 2
		}
		if tick, ok := r.c.NextTick(); ok && tick.Sub(epoch).Seconds() < next {
			next, kind = tick.Sub(epoch).Seconds(), 3
		}
		if math.IsInf(next, 1) {
			return nil
		}
		r.progress(next)
		var decisions []admission.Decision
		var err error
		switch kind {
		case 0:
			decisions, err = r.end(who)
		case 1:
			r.capacity = r.changes[changes].slots
			decisions, err = r.c.SetCapacity(at(r.now), r.capacity)
			changes++
		case 2:
			j := &r.jobs[arrivals]
			decisions, err = r.c.Submit(at(r.now), admission.Job{
				ID: r.names[arrivals], User: j.user, Tasks: j.tasks, Deadline: duration(j.deadline), Work: duration(j.work),
			})
			arrivals++
		default:
			decisions = r.c.Tick(at(r.now))
		}
		if err != nil {
			return err
		}
		r.carryOut(decisions)
	}
}

// nextEnd returns when the next running job has done its work.
func (r *run) nextEnd() (at float64, who int) {
	at, who = math.Inf(1), -1
	for _, s := range r.running {
		if s.slots > 0 {
			if t := r.now + max(0, r.left[s.job])/s.slots; t < at {
				at, who = t, s.job
			}
		}
	}
	return at, who
}

// progress lets the running jobs work until next.
func (r *run) progress(next float64) {
	for _, s := range r.running {
		work := s.slots * (next - r.now)
		r.left[s.job] -= work
		r.out.jobs[s.job].got += work
	}
	r.now = max(r.now, next)
}

// end reports that a job has done its work.
func (r *run) end(i int) ([]admission.Decision, error) {
	e := &r.out.jobs[i]
	decisions, met, err := r.c.Finished(at(r.now), r.names[i], duration(r.jobs[i].work))
	e.finish, e.met = r.now, met
	if f := r.c.Fraction(); f >= 0 {
		r.out.fractions = append(r.out.fractions, f)
	}
	return decisions, err
}

// carryOut does what was decided.
func (r *run) carryOut(decisions []admission.Decision) {
	for _, d := range decisions {
		i := r.index[d.ID]
		e := &r.out.jobs[i]
		if d.Verdict != admission.Resized {
			e.last = d
		}
		switch d.Verdict {
		case admission.Admitted:
			if e.verdict != admission.Queued {
				e.verdict = admission.Admitted
			}
			e.ran, e.start, e.first = true, r.now, d.Slots
		case admission.Queued, admission.Refused:
			e.verdict = d.Verdict
		case admission.Resized:
			e.resized = true
		case admission.Stopped:
			e.finish = r.now
		}
	}
	r.running = r.running[:0]
	sum := 0.0
	for id, slots := range r.c.Running() {
		r.running = append(r.running, share{r.index[id], slots})
		sum += slots
	}
	if r.capacity > 0 {
		r.out.most = max(r.out.most, sum/float64(r.capacity))
	}
}
