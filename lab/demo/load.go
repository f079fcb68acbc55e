package demo

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/emulator"
	"headroom/lab/experiment/harness"
	"headroom/units"
)

// The two priority classes, highest first.
const (
	classHigh = "high"
	classLow  = "low"
)

const (
	// taskWall is how long a task of a worker takes on an uncapped node whose slots are all busy: short enough
	// that a job of class high does not wait long for a slot.
	taskWall = 1200 * time.Millisecond
	// tasksMost bounds a job of the workers: larger clusters get more jobs, not larger ones.
	tasksMost = 48
	// engineMost is the most that a node is given in a run with an engine, as a part of what it is rated: a node
	// with all the watts that it is rated for cannot sprint, and neither can any where the caps leave nothing of
	// the site's budget.
	engineMost = 0.7
	// Joules and watts that the nodes may draw above their caps in a run with an engine.
	sprintJoules, sprintRefill = 6000, 10
)

// setup is the cluster and its load. Its jobs are one of class low and one of class high.
func (o *options) setup() *harness.Setup {
	s := &harness.Setup{
		Dir: o.out, Coordinators: 3, Nodes: o.nodes, Variant: harness.Variant{Policy: "joint"}, Steps: []harness.Step{{Caps: []float64{engineMost}}}, Margin: 1,
		Jobs: []harness.Job{{Class: classLow}, {Class: classHigh}},
	}
	low, high := &s.Jobs[0], &s.Jobs[1]
	switch o.engine {
	case engineYARN:
		s.Engine = harness.YARN(harness.Class{Name: classHigh, Weight: 1, Guarantee: 1, More: ", sprint_after: 0s"},
			harness.Class{Name: classLow, Weight: 1, Guarantee: 0.5, More: ", deadline: 60s"}) // jobs that wait for others miss it
		s.Variant.Scheduler = "classes:\n  - {name: high, sprint_after: 0s}\n  - {name: low}\n"
		low.Tasks, high.Tasks = 24, 12
	case engineSpark:
		app := harness.Popularity(300 << 10)
		app.ExecutorCores, app.MemoryMB = 0, 0
		s.Engine = harness.Spark(app)
		// A driver has no executors in its first seconds.
		s.Variant.Scheduler = "discipline: dias\nclasses:\n  - {name: high, sprint_after: 5s}\n  - {name: low, theta: 25%}\n"
		low.Tasks, high.Tasks, low.Floor, high.Floor = 40, 40, 0.6, 1
	default:
		// Slots that use the node's CPUs, and enough that a lower cap leaves both classes one.
		s.Slots = max(harness.LocalSlots/2, int(math.Ceil(1.5*emulator.HostShare*float64(runtime.NumCPU())/float64(o.nodes))))
		all := s.Slots * o.nodes
		s.Engine, s.Steps[0].Caps = harness.Local(taskWall, float64(all), 1), []float64{1}
		low.Tasks, high.Tasks, high.Slots = min(2*all, tasksMost), min(all, tasksMost), max(1, all/4)
	}
	return s
}

// submit submits the next job of a class.
func (d *show) submit(ctx context.Context, class string) error {
	j := d.setup.Jobs[0]
	if class == classHigh {
		j = d.setup.Jobs[1]
	}
	d.tracker.locked(func() {
		d.made[class]++
		j.Name = fmt.Sprintf("%s-%d", class, d.made[class])
	})
	_, err := d.lab.Engine.Submit(ctx, &j)
	return err
}

// feedEvery is the pause between two looks at whether the workers need jobs.
const feedEvery = 300 * time.Millisecond

// feed keeps the workers busy with both classes until the budget is raised again: then the jobs run out.
func (d *show) feed(ctx context.Context) error {
	return every(ctx, feedEvery, func() error {
		if d.raised.Load() {
			return nil
		}
		answer, err := d.lab.List(ctx)
		if err != nil {
			return nil // the next look is near
		}
		for _, class := range wanted(answer.GetJobs(), d.setup.Slots*d.setup.Nodes) {
			if err := d.submit(ctx, class); err != nil {
				return err
			}
		}
		return nil
	})
}

// wanted are the classes of which a job must be submitted to keep so many slots busy.
func wanted(jobs []*headroomv1.Job, slots int) (classes []string) {
	if loadOf(jobs, classHigh).jobs == 0 {
		classes = append(classes, classHigh)
	}
	if loadOf(jobs, classLow).left < 2*slots {
		classes = append(classes, classLow)
	}
	return classes
}

// fillSprints fills the budget of joules, which begins with nothing and is then refilled slowly.
func (d *show) fillSprints(ctx context.Context) error {
	full := units.FromJoules(sprintJoules)
	if err := d.lab.SetSprint(ctx, full, units.Power(full)); err != nil {
		return err
	}
	if err := d.lab.Await(ctx, "the joules for sprints are not there", func(ctx context.Context) bool {
		s, _, err := d.lab.Domain(ctx)
		return err == nil && filled(s)
	}); err != nil {
		return err
	}
	return d.lab.SetSprint(ctx, full, units.FromWatts(sprintRefill))
}

// filled reports whether a domain's budget for sprints holds as much as it can.
func filled(d *headroomv1.Domain) bool {
	held := int64(0)
	for _, pot := range d.GetSprint().GetPots() {
		held += pot.GetBalanceUj()
	}
	return d.GetSprint() != nil && held >= d.GetSprint().GetCapacityUj()
}

// live reports whether a job has not ended.
func live(j *headroomv1.Job) bool {
	state := j.GetState()
	return state != headroomv1.JobState_JOB_STATE_DONE && state != headroomv1.JobState_JOB_STATE_FAILED && state != headroomv1.JobState_JOB_STATE_CANCELLED
}

// load is what some jobs have to do now: unfinished jobs, their unfinished and running tasks.
type load struct{ jobs, left, running int }

// loadOf sums up the unfinished jobs of a class, "" for all.
func loadOf(jobs []*headroomv1.Job, class string) (l load) {
	for _, j := range jobs {
		if (class == "" || class == j.GetClass()) && live(j) {
			p := j.GetProgress()
			l.jobs++
			l.left += int(p.GetTasks() - min(p.GetTasks(), p.GetDone()+p.GetDropped()))
			l.running += int(p.GetRunning())
		}
	}
	return l
}
