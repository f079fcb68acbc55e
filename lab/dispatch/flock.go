package dispatch

import (
	"math"
	"time"

	"headroom/jobs/dispatch/pigeon"
	"headroom/lab/events"
)

// flock is Pigeon: distributors and the masters of groups.
type flock struct {
	*world
	distributors []*distributor
	groups       []*group
	// next is when the masters report next.
	next float64
}

// reportEvery is how often a master reports to all distributors, s (Li, section 4.6.2: periodically).
const reportEvery = 1

// distributor learns from its own results only.
type distributor struct {
	*pigeon.Distributor[task]
	power *pigeon.Power
	// heard is when it last heard from each group.
	heard []float64
}

type task struct {
	job  *job
	time float64
}

// placed is a task at a master.
type placed struct {
	task
	id pigeon.ID // of the distributor
}

// group is a master and the slots of its workers. The workers are alike, so that the master has them as one with many slots.
type group struct {
	master *pigeon.Master[placed]
	worker pigeon.Worker
	speed  float64
	slots  []slot
	free   []int32
	// reported is the master's last report and its time.
	reported report
}

// report is a master's report of its own state.
type report struct {
	at                  float64
	usable              int
	aheadLow, aheadHigh int
}

type slot struct {
	id      pigeon.ID // of the master
	event   events.ID // its result
	placed  placed
	started float64
	work    events.Work[float64]
	running bool
}

func newFlock(w *world) *flock {
	f := &flock{world: w}
	for g := range w.setup.Groups {
		n := w.setup.Size(g)
		x := &group{master: pigeon.NewMaster[placed](pigeon.MasterOptions{W: w.setup.W}), speed: 1, slots: make([]slot, n)}
		x.worker = x.master.Join(n, w.setup.Reserved)
		for i := range n {
			x.free = append(x.free, int32(i))
		}
		f.groups = append(f.groups, x)
	}
	for range w.setup.Distributors {
		d := &distributor{
			Distributor: pigeon.NewDistributor[task](pigeon.DistributorOptions{Spread: w.setup.Policy.spread(), Placement: w.setup.Placement, Random: w.random}),
			power:       pigeon.NewPower(w.setup.Groups), heard: make([]float64, w.setup.Groups),
		}
		for g, x := range f.groups {
			d.Window(d.Join(), math.MaxInt, math.MaxInt) // no back-pressure, as in the paper
			d.power.Cap(0, pigeon.Group(g), w.setup.Size(g))
			f.hear(d, g, x.report(0))
		}
		f.distributors = append(f.distributors, d)
	}
	for i := range w.setup.Caps {
		c := &w.setup.Caps[i]
		f.clock.Schedule(c.At, rankCap, func() { f.recap(c) })
	}
	return f
}

func (f *flock) arrive(j *job) {
	tasks := make([]task, len(j.times))
	for i, t := range j.times {
		tasks[i] = task{j, t}
	}
	d := f.distributors[j.distributor]
	f.reportAll()
	for g, x := range f.groups { // before it splits by them
		if x.reported.at > d.heard[g] {
			f.hear(d, g, x.reported)
		}
	}
	d.Submit(tasks, j.short, nil)
	f.send(d)
}

// send hands over what a distributor has to send, a batch for each group.
func (f *flock) send(d *distributor) {
	var batch []pigeon.Send[task]
	for {
		s, more := d.Next()
		if len(batch) > 0 && (!more || batch[0].Group != s.Group) {
			arrived := batch
			f.hop(func() { f.take(int(arrived[0].Group), arrived) })
			batch = nil
		}
		if !more {
			return
		}
		batch = append(batch, s)
	}
}

func (f *flock) take(g int, batch []pigeon.Send[task]) {
	f.reportAll()
	x := f.groups[g]
	for _, s := range batch {
		x.master.Place(placed{s.Task, s.ID}, s.High)
		f.start(g)
	}
	f.hear(f.distributors[batch[0].Task.job.distributor], g, x.report(f.now()))
}

func (f *flock) start(g int) {
	x := f.groups[g]
	for s, more := x.master.Next(); more; s, more = x.master.Next() {
		i := x.free[len(x.free)-1]
		x.free = x.free[:len(x.free)-1]
		began := f.now() + f.setup.Hop
		x.slots[i] = slot{id: s.ID, placed: s.Task, started: began, work: events.Work[float64]{Left: s.Task.time, Rate: x.speed, Since: began}, running: true}
		x.slots[i].event = f.clock.Schedule(x.slots[i].work.Ends()+f.setup.Hop, rankTask, func() { f.end(g, i) })
	}
}

// end takes a result, at the distributor and at the master at the same time.
func (f *flock) end(g int, i int32) {
	f.reportAll()
	x := f.groups[g]
	w := &x.slots[i]
	id, j, ran := w.placed.id, w.placed.job, f.now()-f.setup.Hop-w.started
	index, d := uint64(j.index), f.distributors[j.distributor]
	w.running = false
	x.free = append(x.free, i)
	x.master.End(w.id)
	f.start(g)
	if _, first := d.Result(id); !first {
		panic("dispatch: a task has two results")
	}
	if f.setup.Policy.learns() {
		d.power.Ended(seconds(f.now()), pigeon.Group(g), index, seconds(ran))
	}
	f.hear(d, g, x.report(f.now()))
	if f.ended(j, ran) && f.setup.Policy.learns() {
		d.power.Done(seconds(f.now()), index)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (x *group) report(at float64) report {
	s := x.master.State()
	ahead := s.RunningHigh + s.RunningLow + s.WaitingHigh
	return report{at: at, usable: s.Usable, aheadLow: ahead + s.WaitingLow, aheadHigh: ahead}
}

// hear updates a distributor's view of a group. A master answers so to each batch and with each result, and reports to all every reportEvery.
func (f *flock) hear(d *distributor, g int, r report) {
	if f.setup.Policy.spread() == pigeon.Even {
		return
	}
	power := float64(r.usable)
	if f.setup.Policy.learns() {
		power = d.power.Power(pigeon.Group(g))
	}
	d.heard[g] = r.at
	d.Report(pigeon.Group(g), power, r.aheadLow, r.aheadHigh)
}

// reportAll notes the masters' states at the last report up to now. It is called before anything changes at that time, so that their states
// are still those of the report, and no event is needed for each.
func (f *flock) reportAll() {
	if f.now() < f.next || f.setup.Policy.spread() == pigeon.Even {
		return
	}
	at := math.Floor(f.now()/reportEvery) * reportEvery
	for _, x := range f.groups {
		x.reported = x.report(at)
	}
	f.next = at + reportEvery
}

// recap changes a group's cap: what runs goes on at the new speed; slots are withdrawn, those without reservation first.
func (f *flock) recap(c *Cap) {
	f.reportAll()
	x := f.groups[c.Group]
	for i := range x.slots {
		if w := &x.slots[i].work; x.slots[i].running && w.LeftAt(max(f.now(), w.Since)) > 0 { // otherwise its result is on the way
			w.SetRate(max(f.now(), w.Since), c.Speed)
			f.clock.Move(x.slots[i].event, w.Ends()+f.setup.Hop)
		}
	}
	x.speed = c.Speed
	x.master.Usable(x.worker, c.Usable)
	f.start(c.Group)
	for _, d := range f.distributors {
		d.power.Cap(seconds(f.now()), pigeon.Group(c.Group), c.Usable)
		f.hear(d, c.Group, x.report(f.now()))
	}
}
