// Claims: shares add up and leave every job its least; no early stop below the floor,
// before the uncapped finish time, or of a job that no cap has slowed; unknown
// estimates give equal shares; shares settle instead of swinging; the order of jobs
// does not matter; reports that are invalid are harmless.
package arbiter_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

const (
	second = time.Second
	watt   = units.Watt
	full   = 350 * watt
	every  = 5 * second
)

// job is a job of the little engine below: a fluid of tasks.
type job struct {
	arbiter.Job
	each float64 // seconds of one task at full speed
	work float64 // done, in tasks
	told int     // its share
	end  time.Duration
}

// loop is an engine that follows shares late, and an arbiter.
type loop struct {
	arbiter  arbiter.Arbiter
	settings arbiter.Settings
	jobs     []*job
	total    int
	cap      units.Power
	now      time.Duration
	changes  [][]arbiter.Share
	stops    []arbiter.Stop
	last     arbiter.Decision
}

func newLoop(jobs ...*job) *loop {
	l := &loop{settings: arbiter.DefaultSettings(), jobs: jobs, total: 28, cap: full}
	for i, j := range jobs {
		j.ID, j.Name, j.Pending, j.Phase, j.Reduced = fmt.Sprint("j", i), fmt.Sprint("app", i), j.Tasks, progress.Map, -1
	}
	return l
}

func fluid(tasks int, each, floor float64) *job {
	return &job{Job: arbiter.Job{Tasks: tasks, Floor: floor}, each: each}
}

func (l *loop) running() []*job {
	return slices.DeleteFunc(slices.Clone(l.jobs), func(j *job) bool { return j.end > 0 })
}

// step lets one interval go by and asks the arbiter. What a job holds moves half of the
// way to its share in each: containers change hands only when tasks end.
func (l *loop) step() {
	l.now += every
	in := arbiter.Input{Settings: l.settings, Containers: l.total, Overhead: 1}
	for _, j := range l.running() {
		want := j.told
		if want == 0 {
			want = l.total / len(l.running())
		}
		j.Held += (want - j.Held + 1) / 2
		if d := want - j.Held; d == -1 {
			j.Held--
		}
		speed := math.Pow(float64(l.cap)/float64(full), 0.8)
		j.work = min(float64(j.Tasks-j.Dropped), j.work+every.Seconds()*float64(max(0, j.Held-1))*speed/j.each)
		j.Work, j.Done, j.Elapsed = j.work, int(j.work+1e-9), l.now
		j.Running = min(j.Held-1, j.Tasks-j.Dropped-j.Done)
		j.Pending = j.Tasks - j.Dropped - j.Done - j.Running
		j.Power, j.Full = l.cap, full
		if j.Done == j.Tasks-j.Dropped {
			j.end = l.now
			continue
		}
		in.Jobs = append(in.Jobs, j.Job)
	}
	l.apply(l.arbiter.Step(l.now, in))
}

func (l *loop) apply(d arbiter.Decision) {
	l.last = d
	if d.Changed {
		for _, j := range l.jobs {
			j.told = 0
		}
		for _, s := range d.Shares {
			l.find(s.ID).told = s.Containers
		}
		l.changes = append(l.changes, d.Shares)
	}
	for _, u := range d.Uncapped {
		l.find(u.ID).Uncapped = u.At
	}
	for _, s := range d.Stops {
		j := l.find(s.ID)
		j.Stopped = true
		j.Dropped = min(j.Pending, s.Tasks-s.MinTasks)
		l.stops = append(l.stops, s)
	}
}

func (l *loop) find(id string) *job {
	for _, j := range l.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// run steps until all jobs have ended, or as far as the time given.
func (l *loop) run(until time.Duration) {
	for l.now < until && len(l.running()) > 0 {
		l.step()
	}
}

// While no cap slows anything, the engine divides; the uncapped finish times are
// committed, and nobody is stopped early.
func TestUncapped(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(120, 20, 1), fluid(120, 20, 0.5))
	l.run(100 * second)
	for _, j := range l.jobs {
		if off := j.Uncapped.Seconds() / 185; off < 0.85 || off > 1.15 {
			t.Errorf("%s: committed %v, finishes at about 185 s", j.ID, j.Uncapped)
		}
	}
	l.run(time.Hour)
	if len(l.changes) != 1 || len(l.changes[0]) != 0 || len(l.stops) != 0 {
		t.Errorf("shares %v, stops %v", l.changes, l.stops)
	}
}

// Once a cap bites the uncapped finish times stand still, the job that needs all its
// tasks gets more than the one that does not, and that one stops early, on its floor
// or more, behind its uncapped finish time. Shares move a few times, not at every step.
func TestCapBites(t *testing.T) {
	t.Parallel()
	for _, policy := range []containers.Policy{containers.Stretch, containers.Paper, containers.Released} {
		l := newLoop(fluid(120, 20, 1), fluid(120, 20, 0.5))
		l.settings.Containers = policy
		l.run(60 * second)
		l.cap = 175 * watt
		l.step()
		before := []time.Duration{l.jobs[0].Uncapped, l.jobs[1].Uncapped}
		exact, steps := 0, 0
		for len(l.running()) == 2 {
			l.step()
			if steps++; l.jobs[0].told > l.jobs[1].told {
				exact++
			}
		}
		l.run(time.Hour)
		if l.jobs[0].Uncapped != before[0] || l.jobs[1].Uncapped != before[1] {
			t.Errorf("%s: the uncapped finish times moved under a cap", policy)
		}
		if policy != containers.Released && exact*2 < steps {
			t.Errorf("%s: the exact job had more containers in %d of %d steps", policy, exact, steps)
		}
		if len(l.changes) > 3+int(l.now/(12*second)) {
			t.Errorf("%s: %d changes of shares in %v: %v", policy, len(l.changes), l.now, l.changes)
		}
		for _, s := range l.stops {
			if j := l.find(s.ID); j.Floor == 1 || j.Tasks-j.Dropped < s.MinTasks || s.MinTasks != 60 {
				t.Errorf("%s: %+v left %d tasks", policy, s, j.Tasks-j.Dropped)
			}
		}
		if l.jobs[0].Dropped != 0 {
			t.Errorf("%s: the exact job lost tasks", policy)
		}
	}
}

// Only the policy that seeks the least sum of delays waits until that falls: by
// equation (3) shares follow d/D, though the sum rises by it.
func TestPaperFollowsItsOwnRule(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(400, 20, 1), fluid(60, 20, 1))
	l.settings.Containers = containers.Paper
	l.cap = 175 * watt
	for _, j := range l.jobs {
		j.Uncapped = 100 * second
	}
	l.run(60 * second)
	first := l.changes[len(l.changes)-1]
	l.jobs[1].Uncapped = 1000 * second // by hand: it is in no hurry any more
	l.jobs[0].Uncapped = 50 * second
	l.run(100 * second)
	if last := l.changes[len(l.changes)-1]; last[0].Containers <= first[0].Containers {
		t.Errorf("%v, then %v: the first job is the one that is late", first, last)
	}
}

// A job that was born under a cap gets its uncapped finish time from the learned
// curve, once, and near to the truth.
func TestBornUnderACap(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(240, 20, 1), fluid(240, 20, 1))
	l.cap = 200 * watt
	l.run(time.Hour)
	for _, j := range l.jobs {
		if off := j.Uncapped.Seconds() / 369; off < 0.75 || off > 1.3 {
			t.Errorf("%s: %v, it would have ended at about 369 s", j.ID, j.Uncapped)
		}
	}
}

// An uncapped finish time is never below the least that the time so far can have cost
// without a cap, and comes with bounds: of few quick tasks in waves, of which only ends
// are counted, looked at when it happens, whatever the cap.
func TestFewQuickTasksBornUnderACap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, tasks := rapid.IntRange(1, 12).Draw(t, "slots"), rapid.IntRange(2, 48).Draw(t, "tasks")
		j := arbiter.Job{ID: "a", Name: "quick", Tasks: tasks, Work: -1, Reduced: -1, Floor: 0.5, Full: full}
		j.Power = units.Power(rapid.IntRange(60, 340).Draw(t, "cap")) * watt
		share := float64(j.Power) / float64(full)
		each := rapid.Float64Range(0.5, 10).Draw(t, "each")
		length := each / math.Pow(share, rapid.Float64Range(0.2, 1.5).Draw(t, "exponent"))
		waves := math.Ceil(float64(tasks) / float64(slots))
		var a arbiter.Arbiter
		for at := rapid.Float64Range(0.5, 9).Draw(t, "first"); at < waves*length; at += every.Seconds() {
			j.Elapsed, j.Done = time.Duration(at*float64(second)), min(tasks, int(at/length)*slots)
			j.Running = min(slots, tasks-j.Done)
			j.Held, j.Pending = j.Running, tasks-j.Done-j.Running
			d := a.Step(j.Elapsed, arbiter.Input{Settings: arbiter.DefaultSettings(), Jobs: []arbiter.Job{j}})
			for _, u := range d.Uncapped {
				o := d.Outlooks[0]
				if least := j.Elapsed.Seconds() * share * share; u.At.Seconds() < least-1e-6 {
					t.Fatalf("%v after %v under %v of %v: without a cap that takes %.2f s at least", u.At, j.Elapsed, j.Power, full, least)
				}
				if o.Uncapped != u.At || o.UncappedLow <= 0 || o.UncappedLow >= u.At || o.UncappedHigh <= u.At {
					t.Fatalf("%v from %v to %v", u.At, o.UncappedLow, o.UncappedHigh)
				}
				j.Uncapped = u.At
			}
		}
	})
}

// Both estimators are held against the runtime of a job that is done, by what each said
// at the same looks; of a job that is gone without a runtime nothing is said.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(240, 20, 1), fluid(120, 20, 1))
	l.cap = 250 * watt
	var said []float64
	for l.now < 150*second {
		l.step()
		said = append(said, l.last.Outlooks[0].Finish.At.Seconds())
	}
	end := 300 * second
	d := l.arbiter.Step(l.now+every, arbiter.Input{Settings: l.settings, Ended: []arbiter.Ended{{"j0", end}, {"stranger", second}}})
	if len(d.Verdicts) != 1 || d.Verdicts[0].ID != "j0" || len(d.Verdicts[0].Errors) != 2 {
		t.Fatalf("%+v", d.Verdicts)
	}
	learned, paper := d.Verdicts[0].Errors[0], d.Verdicts[0].Errors[1]
	if learned.Policy != progress.Learned || paper.Policy != progress.Paper || learned.Predictions != paper.Predictions || paper.Error == learned.Error {
		t.Errorf("%+v, %+v", learned, paper)
	}
	if learned.Predictions < len(said)-2 || learned.Predictions > len(said) {
		t.Errorf("%d predictions in %d looks", learned.Predictions, len(said))
	}
	off := 0.0
	for _, at := range said[len(said)-learned.Predictions:] {
		off += math.Abs(at-end.Seconds()) / end.Seconds() / float64(learned.Predictions)
	}
	if math.Abs(off-learned.Error) > 1e-9 {
		t.Errorf("off by %v, the finish times that were told by %v", learned.Error, off)
	}
}

// With a constant cap and two jobs alike, shares settle and stay: no swinging between
// the engine's lag and the estimates.
func TestNoOscillation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := newLoop(
			fluid(rapid.IntRange(100, 400).Draw(t, "tasks"), rapid.Float64Range(10, 40).Draw(t, "each"), 1),
			fluid(rapid.IntRange(100, 400).Draw(t, "tasks"), rapid.Float64Range(10, 40).Draw(t, "each"), 1))
		l.run(40 * second)
		l.cap = units.Power(rapid.IntRange(150, 300).Draw(t, "cap")) * watt
		turns, last := 0, 0
		for len(l.running()) == 2 {
			was := l.jobs[0].told
			l.step()
			move := l.jobs[0].told - was
			if was > 0 && l.jobs[0].told > 0 && move != 0 {
				if last != 0 && (move > 0) != (last > 0) {
					turns++
				}
				last = move
			}
		}
		if turns > 3 {
			t.Fatalf("shares turned %d times in %v: %v", turns, l.now, l.changes)
		}
	})
}

// Whatever is reported, in whatever order: shares add up, each job has its least, no
// stop breaks a rule, and a decision does not depend on the order of the jobs.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a, b arbiter.Arbiter
		slowed := map[string]bool{}
		settings := arbiter.DefaultSettings()
		settings.Containers = rapid.SampledFrom(containers.Policies()).Draw(t, "policy")
		settings.Estimator = rapid.SampledFrom(progress.Policies()).Draw(t, "estimator")
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			in := arbiter.Input{Settings: settings, Containers: rapid.IntRange(0, 40).Draw(t, "containers"), Overhead: rapid.IntRange(0, 1).Draw(t, "overhead")}
			for i := range rapid.IntRange(0, 6).Draw(t, "jobs") {
				in.Jobs = append(in.Jobs, drawJob(t, i))
			}
			now := time.Duration(step) * every
			d := a.Step(now, in)
			judge(t, &in, &d, slowed)
			slices.Reverse(in.Jobs)
			if again := b.Step(now, in); !reflect.DeepEqual(d, again) {
				t.Fatalf("in reverse:\n%+v\n%+v", d, again)
			}
		}
	})
}

// drawJob is any report, sensible or not.
func drawJob(t *rapid.T, i int) arbiter.Job {
	return arbiter.Job{
		ID: fmt.Sprint("j", i), Name: "app", Tasks: rapid.IntRange(0, 40).Draw(t, "tasks"), Done: rapid.IntRange(0, 40).Draw(t, "done"),
		Running: rapid.IntRange(0, 9).Draw(t, "running"), Pending: rapid.IntRange(0, 40).Draw(t, "pending"), Dropped: rapid.IntRange(0, 5).Draw(t, "dropped"),
		Work: rapid.Float64Range(-1, 40).Draw(t, "work"), Phase: progress.Phase(rapid.IntRange(0, 4).Draw(t, "phase")),
		Reduced: rapid.Float64Range(-1, 1).Draw(t, "reduced"), Elapsed: time.Duration(rapid.IntRange(0, 100).Draw(t, "elapsed")) * second,
		Floor: rapid.Float64Range(0, 1).Draw(t, "floor"), Uncapped: time.Duration(rapid.SampledFrom([]int{0, 0, 20, 50}).Draw(t, "uncapped")) * second,
		Stopped: rapid.Bool().Draw(t, "stopped"), Held: rapid.IntRange(0, 12).Draw(t, "held"),
		Power: units.Power(rapid.SampledFrom([]int{0, 150, 250, 350}).Draw(t, "power")) * watt, Full: units.Power(rapid.SampledFrom([]int{0, 350}).Draw(t, "full")) * watt,
	}
}

func judge(t *rapid.T, in *arbiter.Input, d *arbiter.Decision, slowed map[string]bool) {
	t.Helper()
	sum := 0
	for _, s := range d.Shares {
		if sum += s.Containers; s.Containers < in.Overhead+1 {
			t.Fatalf("%s gets %d", s.ID, s.Containers)
		}
	}
	if len(d.Shares) > 0 && sum != in.Containers || len(d.Outlooks) != len(in.Jobs) {
		t.Fatalf("%d containers, %d given; %d jobs, %d outlooks", in.Containers, sum, len(in.Jobs), len(d.Outlooks))
	}
	jobs := map[string]arbiter.Job{}
	for _, j := range in.Jobs {
		jobs[j.ID] = j
		slowed[j.ID] = slowed[j.ID] || j.Power > 0 && j.Full > 0 && j.Power < j.Full
	}
	for id := range slowed {
		if _, named := jobs[id]; !named {
			delete(slowed, id) // forgotten
		}
	}
	for _, s := range d.Stops {
		j := jobs[s.ID]
		if j.Stopped || j.Done+j.Running < s.MinTasks || float64(s.MinTasks) < float64(j.Tasks)*j.Floor-1e-6 || !slowed[s.ID] || j.Uncapped == 0 || j.Elapsed <= j.Uncapped || s.Reason == "" {
			t.Fatalf("%+v of %+v", s, j)
		}
	}
	for _, u := range d.Uncapped {
		if u.At <= 0 {
			t.Fatalf("%+v", u)
		}
	}
	for _, o := range d.Outlooks {
		if o.Why == "" || strings.Contains(o.Why, "NaN") || o.CapShare < 0 || o.CapShare > 1 || o.MinTasks > jobs[o.ID].Tasks {
			t.Fatalf("%+v of %+v", o, jobs[o.ID])
		}
	}
}

// Jobs of which nothing is known yet get equal shares as soon as shares are set.
func TestUnknownIsEqual(t *testing.T) {
	t.Parallel()
	var a arbiter.Arbiter
	in := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: 30, Overhead: 1}
	for i := range 3 {
		in.Jobs = append(in.Jobs, arbiter.Job{ID: fmt.Sprint(i), Tasks: 50, Pending: 50, Work: -1, Reduced: -1, Floor: 1, Power: 200 * watt, Full: full, Phase: progress.Waiting})
	}
	d := a.Step(0, in)
	if want := []arbiter.Share{{ID: "0", Containers: 10}, {ID: "1", Containers: 10}, {ID: "2", Containers: 10}}; !d.Changed || !slices.Equal(d.Shares, want) {
		t.Errorf("%+v", d.Shares)
	}
	if d = a.Step(every, in); d.Changed {
		t.Errorf("sent again: %+v", d.Shares)
	}
}

// Where containers do not suffice, the youngest jobs are not named, and the trouble
// says who goes without.
func TestTooFew(t *testing.T) {
	t.Parallel()
	var a arbiter.Arbiter
	in := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: 5, Overhead: 1}
	for i := range 3 {
		in.Jobs = append(in.Jobs, arbiter.Job{
			ID: fmt.Sprint(i), Tasks: 9, Pending: 9, Work: -1, Reduced: -1, Floor: 1, Power: 200 * watt, Full: full, Elapsed: time.Duration(9-i) * second,
		})
	}
	d := a.Step(0, in)
	if len(d.Shares) != 2 || d.Shares[0].Containers+d.Shares[1].Containers != 5 || !strings.Contains(d.Trouble, "2 would get none") {
		t.Errorf("%+v, %q", d.Shares, d.Trouble)
	}
}

// While it is not known how many containers there are, what stands stays.
func TestContainersUnknownForAWhile(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(120, 20, 1), fluid(120, 20, 0.5))
	l.cap = 200 * watt
	l.run(40 * second)
	told, changes := l.jobs[0].told, len(l.changes)
	if l.total = 0; told == 0 {
		t.Fatal("no share yet")
	}
	l.step()
	if l.jobs[0].told != told || len(l.changes) != changes {
		t.Errorf("%d containers became %d", told, l.jobs[0].told)
	}
}

// An application master that restarts begins with nothing done: nothing is stopped,
// and the estimates come back.
func TestRestart(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(200, 20, 1), fluid(200, 20, 1))
	l.cap = 200 * watt
	l.run(60 * second)
	l.jobs[0].work = 0
	for range 12 {
		l.step()
	}
	if o := l.last.Outlooks[0]; !o.Finish.Known || o.Finish.At < l.now {
		t.Errorf("at %v: %+v", l.now, o)
	}
	l.run(time.Hour)
	if len(l.stops) != 0 || len(l.running()) != 0 {
		t.Errorf("stops %v, %d jobs running", l.stops, len(l.running()))
	}
}

// An arbiter that takes over in the middle of a job's life keeps the committed
// uncapped finish time, whatever it estimates itself.
func TestTakesOver(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(200, 20, 1), fluid(200, 20, 0.5))
	l.run(60 * second)
	l.arbiter = arbiter.Arbiter{}
	for _, j := range l.jobs {
		j.Uncapped *= 2
	}
	want := l.jobs[0].Uncapped
	l.run(120 * second)
	if l.jobs[0].Uncapped != want {
		t.Errorf("%v became %v", want, l.jobs[0].Uncapped)
	}
}

// Once the last job that a cap has slowed has ended, the engine divides by itself again.
func TestReleasesAtLast(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(120, 20, 1), fluid(120, 20, 1))
	l.cap = 200 * watt
	l.run(40 * second)
	l.cap = full
	l.run(time.Hour)
	if last := l.changes[len(l.changes)-1]; len(l.changes) < 2 || len(last) != 0 {
		t.Errorf("%v", l.changes)
	}
}

// The outlook says finish, cap, tasks and share, in numbers and in words.
func TestOutlook(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(120, 20, 1), fluid(120, 20, 0.5))
	l.run(60 * second)
	l.cap = 175 * watt
	l.run(100 * second)
	o := l.last.Outlooks[1]
	if !o.Finish.Known || o.Finish.Low > o.Finish.At || o.Finish.High < o.Finish.At || o.CapShare != 0.5 || o.MinTasks != 60 || o.AimTasks < 60 || o.Containers == 0 {
		t.Errorf("%+v", o)
	}
	if !strings.Contains(o.Why, "capped at 175 W of 350 W; finishes at") || !strings.Contains(o.Why, "of 28 containers") {
		t.Errorf("%q", o.Why)
	}
}

// A job that is further behind than its cap explains says so: by what it is known to lack, or that it is unknown.
func TestWhyBesideTheCap(t *testing.T) {
	t.Parallel()
	l := newLoop(fluid(400, 20, 1))
	l.run(60 * second)
	l.cap = full * 98 / 100
	l.run(80 * second)
	if why := l.last.Outlooks[0].Why; strings.Contains(why, "explains") {
		t.Errorf("the cap costs what it costs: %q", why)
	}
	l.jobs[0].each *= 2 // a disk that has become slow
	l.run(200 * second)
	if why := l.last.Outlooks[0].Why; !strings.Contains(why, "capped at 343 W of 350 W") || !strings.Contains(why, "% behind") || !strings.Contains(why, "what else slows it is unknown") {
		t.Errorf("%q", why)
	}

	l = newLoop(fluid(400, 20, 1))
	l.run(60 * second)
	l.cap = full * 98 / 100
	other := fluid(400, 20, 1)
	other.ID, other.Name, other.Pending, other.Phase, other.Reduced, l.jobs = "j1", "app1", 400, progress.Map, -1, append(l.jobs, other)
	l.run(140 * second)
	if why := l.last.Outlooks[0].Why; !strings.Contains(why, "containers, and ") || !strings.Contains(why, " tasks wait") {
		t.Errorf("%q", why)
	}
	l = newLoop(fluid(400, 20, 1))
	l.run(60 * second)
	l.cap = full / 2
	l.run(140 * second)
	if why := l.last.Outlooks[0].Why; strings.Contains(why, "explains") || !strings.Contains(why, "% behind") {
		t.Errorf("a cap explains all of it: %q", why)
	}
}
