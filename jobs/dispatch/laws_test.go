package dispatch

// Whatever happens in whatever order (jobs, results, failures, lost and returning
// workers, caps, cancellations, restarts), the core keeps its promises.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/speculation"
	"headroom/units"
)

// lab is a world around a core: workers that really hold attempts, files that
// really exist.
type lab struct {
	*rapid.T
	discipline buffers.Discipline
	core       *Core
	run        uint16
	now        time.Time
	nodes      map[string]*labNode
	jobs       map[string]*labJob
	caps       map[string]Cap
	counted    int
	// asked are the drop ratios that the coordinators have not answered yet.
	asked []Deflate
	// policy decides on copies; copied counts those that were started, in all stories.
	policy speculation.Policy
	copied *atomic.Int64
}

// labNode is a worker: it holds attempts whether or not it is connected.
type labNode struct {
	slots     int
	connected bool
	holds     map[Ref]bool
	killed    map[Ref]int
	cut       time.Time
}

// How an attempt was told to stop: on the present stream, or on one before.
const (
	toldToStop = iota + 1
	dyingAtHello
)

// labJob is what a job's owner can see.
type labJob struct {
	plan    Plan
	started bool
	// outputs, reduced and drops are of the present run.
	outputs map[int]bool
	reduced bool
	drops   map[int]bool
	// run is the record of the latest run, as the manifest keeps it; chosen are the tasks that its drop ratio gave up.
	run    RunRecord
	chosen []int
	kills  int
	// given: a share gave it copies once.
	given bool
	// failed counts the failures that the job's tasks really had.
	failed map[string]int
	end    *EndJob
}

func (j *labJob) failures(phase Phase, index int) int { return j.failed[fmt.Sprint(phase, index)] }

// exhausted reports whether some task has failed as often as it may.
func (j *labJob) exhausted() bool {
	for _, n := range j.failed {
		if n >= j.plan.MaxAttempts {
			return true
		}
	}
	return false
}

func newLab(t *rapid.T, d buffers.Discipline, copied *atomic.Int64) *lab {
	l := &lab{T: t, copied: copied, discipline: d, now: start, nodes: map[string]*labNode{}, jobs: map[string]*labJob{}, caps: map[string]Cap{}}
	l.policy = rapid.SampledFrom([]speculation.Policy{
		speculation.Ours, speculation.GRASS, speculation.GS, speculation.RAS, speculation.LATE, speculation.Mantri, speculation.None,
	}).Draw(t, "policy")
	l.restart()
	return l
}

// restart begins with a new core from what survives a kill: the log and the files.
func (l *lab) restart() {
	l.run++
	l.asked = nil
	l.core = New(dispatcher(l.discipline, "high", "low"), l.run, draws)
	l.core.Speculate(Speculation{Policy: l.policy, Xi: 0.3})
	for _, n := range l.nodes {
		n.connected, n.cut = false, l.now
	}
	clear(l.caps)
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		j := l.jobs[id]
		if j.end != nil {
			continue
		}
		past := Past{Run: j.run}
		if !j.run.Over {
			past = Past{Run: j.run, Done: slices.Sorted(maps.Keys(j.outputs)), Dropped: slices.Sorted(maps.Keys(j.drops)), ReduceDone: j.reduced}
		}
		if j.started {
			past.Started = j.run.Began
		}
		testkit.Check(l, l.core.Add(l.now, j.plan, past))
	}
	l.step()
}

// step carries out what the core decides and checks each decision.
func (l *lab) step() {
	actions := l.core.Step(l.now)
	for _, a := range actions {
		l.carryOut(a)
	}
	l.checkConserving()
	l.checkTruth()
}

// checkTruth: on every connected node the core believes to run exactly what runs
// there and was not told to stop; no task runs twice but for copies, on other nodes. An attempt that was told to
// stop before the stream opened, and has not ended yet, may be taken up or not.
func (l *lab) checkTruth() {
	least, dying := make(map[string]int), make(map[string]int) // by job and node
	stopping := func(job string) bool { return l.jobs[job].run.Stopping != "" }
	tasks := make(map[Ref]string)
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		n := l.nodes[name]
		for _, r := range sortedRefs(n.holds) {
			killed := n.killed[r]
			if killed == 0 && n.connected {
				least[r.Job+" "+name]++
				r.Attempt = 0
				if tasks[r] == name || tasks[r] != "" && (r.Phase == PhaseReduce || !l.copies(r.Job)) {
					l.Fatalf("%v runs on %s and on %s", r, tasks[r], name)
				}
				tasks[r] = name
			}
			if killed == dyingAtHello || killed == toldToStop && stopping(r.Job) {
				dying[r.Job+" "+name]++
			}
		}
	}
	for _, v := range l.core.Jobs(l.now) {
		for name, n := range l.nodes {
			few, believed := least[v.ID+" "+name], v.RunningOn[name]
			if n.connected && (believed < few || believed > few+dying[v.ID+" "+name]) {
				l.Fatalf("%s: the core believes %v, %s runs %d", v.ID, v.RunningOn, name, few)
			}
		}
	}
}

// copies reports whether tasks of the job may have copies: not by a policy of none, and for
// others only where a promise is to be kept, or a share ever gave them.
func (l *lab) copies(id string) bool {
	j := l.jobs[id]
	return l.policy != speculation.None && (j.plan.ErrorBound || !j.plan.Deadline.IsZero() || j.given)
}

func (l *lab) carryOut(a Action) {
	switch a := a.(type) {
	case StartJob:
		l.checkOrder(a.Job)
		l.checkWidth()
		j := l.jobs[a.Job]
		if a.Run.Number != j.run.Number+1 {
			l.Fatalf("run %d of %s follows run %d", a.Run.Number, a.Job, j.run.Number)
		}
		j.started, j.run = true, a.Run
	case KeepRun:
		if a.Run.Stopping != "" {
			l.checkKill(a)
		}
		l.jobs[a.Job].run = a.Run
	case Deflate:
		if !l.discipline.Deflates() || a.Run.Theta <= 0 {
			l.Fatalf("%s: %s asks for a drop ratio of %v", l.discipline, a.Job, a.Run.Theta)
		}
		l.asked = append(l.asked, a)
	case DropTasks:
		l.checkChosen(a)
	case RequeueJob:
		l.throwAway(a)
	case SprintDue:
		if r := l.jobs[a.Job].run; !l.discipline.Sprints() || l.now.Before(r.Began.Add(10*time.Second)) {
			l.Fatalf("%s: %s sprints at %v, began at %v", l.discipline, a.Job, l.now, r.Began)
		}
	case StartTask:
		l.checkStart(a)
		l.nodes[a.Node].holds[a.Ref] = true
	case Kill:
		if n := l.nodes[a.Node]; n.holds[a.Ref] {
			n.killed[a.Ref] = toldToStop
		}
	case DropTask:
		l.checkDrop(a)
	case EndJob:
		l.checkEnd(a)
	case LoseWorker:
		if n := l.nodes[a.Node]; n.connected {
			n.connected, n.cut = false, l.now
		}
	}
}

// checkOrder: a job starts only as the oldest of the highest class that waits, unless a share lets it.
func (l *lab) checkOrder(id string) {
	j := l.jobs[id]
	if l.discipline == buffers.Shared && slices.ContainsFunc(l.core.shares, func(s Share) bool { return s.Job == id }) {
		return
	}
	for _, other := range slices.Sorted(maps.Keys(l.jobs)) {
		o := l.jobs[other]
		if other == id || o.started || o.end != nil {
			continue
		}
		higher := o.plan.Class == "high" && j.plan.Class == "low"
		older := o.plan.Class == j.plan.Class && o.plan.Submitted.Before(j.plan.Submitted)
		if higher || older {
			l.Fatalf("%s starts before %s", id, other)
		}
	}
}

// checkWidth: but for jobs of before a restart, one job runs at a time, except where they share the slots.
func (l *lab) checkWidth() {
	if runs := l.core.queue.Running(); l.discipline != buffers.Shared && len(runs) > 1 {
		l.Fatalf("%d jobs run at once: %+v", len(runs), runs)
	}
}

// checkKill: only "p" kills, and only a lower job for a higher one.
func (l *lab) checkKill(a KeepRun) {
	if l.discipline != buffers.P || l.jobs[a.Job].plan.Class != "low" || l.jobs[a.Run.Stopping].plan.Class != "high" {
		l.Fatalf("%s kills %s for %s", l.discipline, a.Job, a.Run.Stopping)
	}
}

// checkChosen: a drop ratio gives up a part of the same order in every run and after every restart, down to what it
// keeps, before anything of the run has started.
func (l *lab) checkChosen(a DropTasks) {
	j := l.jobs[a.Job]
	if l.core.jobs[a.Job].bounded() && (strings.Contains(a.Why, "bound") || strings.Contains(a.Why, "deadline")) {
		l.checkGivenUp(a)
		return
	}
	if len(j.outputs) > 0 {
		l.Fatalf("%s drops %v after tasks %v were done", a.Job, a.Indexes, j.outputs)
	}
	for _, i := range a.Indexes {
		if j.drops[i] {
			l.Fatalf("task %d of %s dropped twice", i, a.Job)
		}
		j.drops[i] = true
	}
	j.chosen = append(j.chosen, a.Indexes...)
	want := slices.Sorted(slices.Values(DropOrder(j.plan.Tasks, draws(buffers.Seed(a.Job)))[:j.plan.Tasks-units.Ratio(1-j.run.Theta).Kept(j.plan.Tasks)]))
	if got := slices.Sorted(slices.Values(j.chosen)); !slices.Equal(got, want) || j.plan.Tasks-len(j.drops) < units.Ratio(j.plan.MinTasks).Of(j.plan.Tasks) {
		l.Fatalf("%s with theta %v drops %v, want %v", a.Job, j.run.Theta, got, want)
	}
}

// checkGivenUp: a job ends at its bound with the tasks of its floor done, not before its deadline
// unless it has an error bound, and gives up everything that is not done.
func (l *lab) checkGivenUp(a DropTasks) {
	j := l.jobs[a.Job]
	for _, i := range a.Indexes {
		if j.drops[i] {
			l.Fatalf("task %d of %s dropped twice", i, a.Job)
		}
		j.drops[i] = true
	}
	done := j.plan.Tasks - len(j.drops)
	if done < max(1, units.Ratio(j.plan.MinTasks).Of(j.plan.Tasks)) || !j.plan.ErrorBound && l.now.Before(j.plan.Deadline) {
		l.Fatalf("%s, %+v, gives up %v at %v", a.Job, j.plan, a.Indexes, l.now)
	}
	for i := range j.plan.Tasks {
		if !j.drops[i] && !j.outputs[i] {
			l.Fatalf("%s ends without task %d", a.Job, i)
		}
	}
}

// throwAway: a killed run is over when nobody runs anything of it; its outputs and failures count no more.
func (l *lab) throwAway(a RequeueJob) {
	j := l.jobs[a.Job]
	for name, n := range l.nodes {
		for r := range n.holds {
			if r.Job == a.Job && n.connected {
				l.Fatalf("%s goes back, and %v is held by %s", a.Job, r, name)
			}
		}
	}
	j.kills++
	j.run, j.started, j.reduced = a.Run, false, false
	clear(j.outputs)
	clear(j.drops)
	clear(j.failed)
}

// answer is the coordinators' answer to a drop ratio: yes, or a refusal.
func (l *lab) answer() {
	if len(l.asked) == 0 {
		return
	}
	a := l.asked[0]
	l.asked = l.asked[1:]
	if rapid.Bool().Draw(l.T, "refused") {
		l.core.Deflated(l.now, a.Job, a.Run.Number, 0, "refused")
	} else {
		l.core.Deflated(l.now, a.Job, a.Run.Number, a.Run.Theta, "")
	}
	l.step()
}

// checkStart: the node is connected and has a usable slot, the job has one left,
// and the task is neither done nor dropped.
func (l *lab) checkStart(a StartTask) {
	n, j := l.nodes[a.Node], l.jobs[a.Ref.Job]
	usable := n.slots
	if c, ok := l.caps[a.Node]; ok {
		usable = UsableSlots(c, n.slots)
	}
	if !n.connected || len(n.holds) >= usable {
		l.Fatalf("%v started on %s: connected %v, %d of %d slots in use", a.Ref, a.Node, n.connected, len(n.holds), usable)
	}
	if j.run.Over || j.run.Stopping != "" || !j.run.Decided {
		l.Fatalf("%v started: %+v", a.Ref, j.run)
	}
	if j.end != nil || j.drops[a.Ref.Index] && a.Ref.Phase == PhaseMap || a.Ref.Phase == PhaseReduce && len(j.outputs) < j.plan.Tasks-len(j.drops) {
		l.Fatalf("%v started: %+v", a.Ref, j)
	}
	if v := l.core.view(l.now, l.core.jobs[a.Ref.Job]); v.Held > j.plan.Slots || v.Held < v.Running {
		l.Fatalf("%d attempts of %d tasks of %s run, slots %d", v.Held, v.Running, a.Ref.Job, j.plan.Slots)
	}
	for name, o := range l.nodes {
		if o.holds[a.Ref] {
			l.Fatalf("attempt %v runs on %s already", a.Ref, name)
		}
	}
	l.checkCopy(a)
}

// checkCopy: a copy runs where its job may have some, on another node than the attempts that
// are to go on, and on none that is capped harder.
func (l *lab) checkCopy(a StartTask) {
	for name, n := range l.nodes {
		for r := range n.holds {
			other := r.Job == a.Ref.Job && r.Phase == a.Ref.Phase && r.Index == a.Ref.Index && n.connected && n.killed[r] == 0
			if !other {
				continue
			}
			l.copied.Add(1)
			if name == a.Node || r.Phase == PhaseReduce || !l.copies(r.Job) || l.core.speed(a.Node) < l.core.speed(name) {
				l.Fatalf("%v started on %s beside %v on %s", a.Ref, a.Node, r, name)
			}
			if most, given := l.core.copiesGiven(l.core.jobs[r.Job]); given && l.core.jobs[r.Job].copies() > most {
				l.Fatalf("%v started, although a share leaves %s %d copies", a.Ref, r.Job, most)
			}
			if l.failedOften(r) {
				l.Fatalf("%v started, although its task may not fail again", a.Ref)
			}
		}
	}
}

// failedOften reports whether the core counts as many failures of a task as it may have.
func (l *lab) failedOften(r Ref) bool {
	j := l.core.jobs[r.Job]
	return j.task(r.Phase, r.Index).failures >= j.MaxAttempts
}

// checkDrop: each task is dropped once, and never below the floor.
func (l *lab) checkDrop(a DropTask) {
	j := l.jobs[a.Job]
	if j.drops[a.Index] {
		l.Fatalf("task %d of %s dropped twice", a.Index, a.Job)
	}
	j.drops[a.Index] = true
	if n := j.failures(PhaseMap, a.Index); n < j.plan.MaxAttempts {
		l.Fatalf("task %d of %s dropped after %d failures, may have %d", a.Index, a.Job, n, j.plan.MaxAttempts)
	}
	if j.plan.Tasks-len(j.drops) < units.Ratio(j.plan.MinTasks).Of(j.plan.Tasks) {
		l.Fatalf("%d of %d tasks of %s dropped, floor %g", len(j.drops), j.plan.Tasks, a.Job, j.plan.MinTasks)
	}
}

// checkEnd: a job that is done has every task's output once, but for the dropped ones.
func (l *lab) checkEnd(a EndJob) {
	j := l.jobs[a.Job]
	if j.end != nil {
		l.Fatalf("%s ended twice", a.Job)
	}
	j.end = &a
	if a.State == Failed && !j.exhausted() {
		l.Fatalf("%s failed as %q, although its tasks failed only %v times", a.Job, a.Outcome, j.failed)
	}
	if a.State != Done {
		return
	}
	l.counted++
	if a.Done+len(j.drops) != j.plan.Tasks || a.Done < units.Ratio(j.plan.MinTasks).Of(j.plan.Tasks) || j.plan.Reduce && !j.reduced {
		l.Fatalf("%s is done as %+v with %d dropped, reduced %v", a.Job, a, len(j.drops), j.reduced)
	}
	for i := range j.plan.Tasks {
		if !j.outputs[i] && !j.drops[i] {
			l.Fatalf("%s is done without task %d", a.Job, i)
		}
	}
}

// checkConserving: with a usable slot free, no job waits and no running job has a
// task that may start.
func (l *lab) checkConserving() {
	if len(l.core.free()) == 0 {
		return
	}
	if j := l.core.head(); j != nil && (l.discipline == buffers.Shared || len(l.core.queue.Running()) == 0) {
		l.Fatalf("%s waits beside free slots %v", j.ID, l.core.free())
	}
	for _, j := range l.core.active {
		if l.hopeless(j) {
			continue
		}
		if _, index, ok := j.next(); ok && j.ready() && j.held < j.Slots {
			l.Fatalf("task %d of %s waits beside free slots %v", index, j.ID, l.core.free())
		}
	}
}

// hopeless reports whether what waits may wait: the tasks of the floor are done or run, and the
// rest may not end by the job's deadline.
func (l *lab) hopeless(j *job) bool {
	return l.core.speculates(j) && j.untilDeadline() && l.now.Before(j.Deadline) && j.est.base > 0 && j.done+j.running >= j.floor()
}

// finish ends one attempt on its worker: the file appears when it succeeded; the
// core hears of it when the worker is connected.
func (l *lab) finish(node string, ref Ref, failure string) {
	n, j := l.nodes[node], l.jobs[ref.Job]
	if n.killed[ref] > 0 && (failure != "" || rapid.Bool().Draw(l.T, "killed in time")) {
		failure = "stopped"
	}
	delete(n.holds, ref)
	delete(n.killed, ref)
	switch {
	case failure == "stopped":
	case (ref.Attempt>>12)&0xf != runBits(j.run.Number) || j.run.Over: // of a run that was killed: its output has a name of its own
	case failure != "":
		j.failed[fmt.Sprint(ref.Phase, ref.Index)]++
	case ref.Phase == PhaseReduce:
		j.reduced = true
	default:
		j.outputs[ref.Index] = true
	}
	switch {
	case n.connected && failure == "stopped":
		l.core.Stopped(l.now, node, ref)
	case n.connected:
		l.core.Result(l.now, node, ref, failure)
	}
	// A result that was not told is told after the next hello, or the task runs again.
	l.step()
}

func (l *lab) hello(name string) {
	n := l.nodes[name]
	n.connected = true
	for ref := range n.killed {
		n.killed[ref] = dyingAtHello
	}
	l.core.Hello(l.now, name, n.slots, sortedRefs(n.holds))
	l.step()
}

// pass lets time pass; connected workers speak.
func (l *lab) pass(d time.Duration) {
	l.now = l.now.Add(d)
	for name, n := range l.nodes {
		if n.connected {
			l.core.Alive(l.now, name)
		}
	}
	l.step()
}

// someAttempt draws an attempt that a worker holds.
func (l *lab) someAttempt() (node string, ref Ref, ok bool) {
	var all []string
	refs := make(map[string]Ref)
	nodes := make(map[string]string)
	for name, n := range l.nodes {
		for r := range n.holds {
			key := name + " " + r.String()
			all, refs[key], nodes[key] = append(all, key), r, name
		}
	}
	if len(all) == 0 {
		return "", Ref{}, false
	}
	slices.Sort(all)
	key := rapid.SampledFrom(all).Draw(l.T, "attempt")
	return nodes[key], refs[key], true
}

func (l *lab) someNode() string {
	return rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(l.T, "node")
}

func (l *lab) submit() {
	if len(l.jobs) >= 12 {
		return
	}
	id := fmt.Sprintf("j%02d", len(l.jobs))
	l.now = l.now.Add(time.Millisecond)
	p := Plan{
		ID: id, Name: id, Class: rapid.SampledFrom([]string{"high", "low"}).Draw(l.T, "class"),
		Slots: rapid.IntRange(1, 8).Draw(l.T, "slots"), Tasks: rapid.IntRange(1, 9).Draw(l.T, "tasks"),
		MinTasks: rapid.SampledFrom([]float64{1, 0.75, 0.5, 0.01}).Draw(l.T, "min"), MaxAttempts: rapid.IntRange(1, 3).Draw(l.T, "attempts"),
		Reduce: rapid.Bool().Draw(l.T, "reduce"), Submitted: l.now,
	}
	if rapid.Bool().Draw(l.T, "deadline") {
		p.Deadline = l.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(l.T, "seconds")) * time.Second)
	}
	p.ErrorBound = rapid.Bool().Draw(l.T, "error bound")
	for range p.Tasks {
		p.Sizes = append(p.Sizes, int64(rapid.IntRange(0, 3).Draw(l.T, "size")))
	}
	l.jobs[id] = &labJob{plan: p, outputs: map[int]bool{}, drops: map[int]bool{}, failed: map[string]int{}}
	testkit.Check(l, l.core.Add(l.now, p, Past{}))
	l.step()
}

func (l *lab) connect() {
	name := l.someNode()
	if l.nodes[name] == nil {
		l.nodes[name] = &labNode{slots: rapid.IntRange(1, 4).Draw(l.T, "slots"), holds: map[Ref]bool{}, killed: map[Ref]int{}}
	}
	if !l.nodes[name].connected {
		l.hello(name)
	}
}

func (l *lab) disconnect() {
	name := l.someNode()
	n := l.nodes[name]
	if n == nil || !n.connected {
		return
	}
	n.connected, n.cut = false, l.now
	if rapid.Bool().Draw(l.T, "goodbye") {
		clear(n.holds)
		clear(n.killed)
		l.core.Broken(name)
		l.core.Gone(l.now, name)
	} else {
		l.core.Broken(name)
	}
	l.step()
}

func (l *lab) end(failure string) {
	if node, ref, ok := l.someAttempt(); ok {
		l.finish(node, ref, failure)
	}
}

func (l *lab) setCap() {
	c := Cap{Cap: units.Power(rapid.IntRange(60, 230).Draw(l.T, "cap")) * units.Watt, Floor: 70 * units.Watt, Max: 220 * units.Watt}
	node := l.someNode()
	l.caps[node] = c
	l.core.SetCap(node, c)
	l.step()
}

// setShares names some jobs, also such that are not there, with more or fewer slots than there are; or lifts all shares.
func (l *lab) setShares() {
	var shares []Share
	for _, id := range append(slices.Sorted(maps.Keys(l.jobs)), "nobody") {
		if rapid.Bool().Draw(l.T, "named") {
			s := Share{Job: id, Slots: rapid.IntRange(0, 9).Draw(l.T, "slots")}
			if rapid.Bool().Draw(l.T, "copies given") {
				s.Copies = new(rapid.IntRange(0, 2).Draw(l.T, "copies"))
				if j := l.jobs[id]; j != nil && *s.Copies > 0 {
					j.given = true
				}
			}
			shares = append(shares, s)
		}
	}
	l.core.Share(shares)
	l.step()
}

func (l *lab) cancel() {
	if len(l.jobs) > 0 {
		l.core.Cancel(l.now, rapid.SampledFrom(slices.Sorted(maps.Keys(l.jobs))).Draw(l.T, "job"), "cancelled")
		l.step()
	}
}

func TestCoreLaws(t *testing.T) {
	t.Parallel()
	for _, d := range buffers.Disciplines() {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			copied := &atomic.Int64{}
			for range 10 { // stories are short and cheap: more of them than rapid's hundred
				rapid.Check(t, func(t *rapid.T) { tellStory(t, d, copied) })
			}
			if copied.Load() == 0 {
				t.Error("no story had a copy")
			}
		})
	}
}

func tellStory(t *rapid.T, d buffers.Discipline, copied *atomic.Int64) {
	l := newLab(t, d, copied)
	t.Repeat(map[string]func(*rapid.T){
		"submit":     func(*rapid.T) { l.submit() },
		"connect":    func(*rapid.T) { l.connect() },
		"disconnect": func(*rapid.T) { l.disconnect() },
		"succeed":    func(*rapid.T) { l.end("") },
		"succeed 2":  func(*rapid.T) { l.end("") },
		"fail":       func(*rapid.T) { l.end("exit status 1") },
		"cap":        func(*rapid.T) { l.setCap() },
		"shares":     func(*rapid.T) { l.setShares() },
		"cancel":     func(*rapid.T) { l.cancel() },
		"answer":     func(*rapid.T) { l.answer() },
		"moment":     func(*rapid.T) { l.pass(100 * time.Millisecond) },
		"second":     func(*rapid.T) { l.pass(time.Second) },
		"4 seconds":  func(*rapid.T) { l.pass(4 * time.Second) },
		"minute":     func(*rapid.T) { l.pass(time.Minute) },
		"kill -9":    func(*rapid.T) { l.restart() },
	})
	l.drain()
}

// drain: with workers back and no more failures, every job comes to an end.
func (l *lab) drain() {
	if l.nodes["n1"] == nil {
		l.nodes["n1"] = &labNode{slots: 1, holds: map[Ref]bool{}, killed: map[Ref]int{}}
	}
	names := slices.Sorted(maps.Keys(l.nodes))
	for _, name := range names {
		if !l.nodes[name].connected {
			l.hello(name)
		}
	}
	for range 1000 {
		l.pass(time.Second)
		busy := len(l.asked) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(l.jobs)), func(j *labJob) bool { return j.end == nil })
		l.answer()
		for _, name := range names {
			for _, r := range sortedRefs(l.nodes[name].holds) {
				l.finish(name, r, "")
				busy = true
			}
		}
		if !busy {
			break
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.jobs)) {
		if j := l.jobs[id]; j.end == nil {
			l.Fatalf("%s never ended: %+v", id, j)
		}
	}
}
