// Claims: jobs that a cap slows get containers by what they may still give up; one
// that has outrun its uncapped finish time stops early and never below its floor;
// a leader that is killed in between loses none of it; directives of a leadership
// that is over are not obeyed.
package coordinator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// yarn is an engine on the nodes of a cluster, and its scheduler: five containers a
// node, jobs that go as fast as the caps which their nodes really hold let them.
type yarn struct {
	c    *cluster
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	jobs    []*plantJob
	epoch   lease.Epoch
	seq     uint64
	old     int // directives of a leadership that was over
	stream  *schedulerStream
	server  *running
	shares  map[string]uint32
	told    []string // shares that were set, in words
	enlists int
}

// plantJob is one MapReduce job: map tasks alone, each 10 s of one container at full speed.
type plantJob struct {
	id      string
	tasks   int
	floor   float64
	work    float64 // tasks
	elapsed time.Duration
	stops   []*headroomv1.StopDirective
	stopped time.Duration
	dropped int
	ended   bool
	least   uint32 // the least containers that it was given
	most    uint32
}

func (j *plantJob) completed() int { return min(int(j.work), j.tasks-j.dropped) }

func newYarn(c *cluster, jobs ...*plantJob) *yarn {
	y := &yarn{c: c, jobs: jobs, stop: make(chan struct{}), shares: map[string]uint32{}}
	for _, j := range jobs {
		y.call(func(s jobService) error {
			_, err := s.CommitJob(context.Background(), connect.NewRequest(&headroomv1.CommitJobRequest{
				Job: &headroomv1.Job{Id: j.id, Name: j.id, Engine: "yarn", Queue: "root." + j.id, Floor: j.floor}, Change: &headroomv1.Change{RequestId: "commit-" + j.id},
			}))
			return err
		})
	}
	y.done.Go(y.run)
	c.t.Cleanup(y.end)
	return y
}

func (y *yarn) end() {
	select {
	case <-y.stop:
	default:
		close(y.stop)
	}
	y.done.Wait()
}

// call asks whoever leads until it is done.
func (y *yarn) call(f func(jobService) error) {
	for range 400 {
		for _, id := range y.c.every() {
			s := y.c.server(id)
			if s == nil || s.leading.Load() == nil {
				continue
			}
			if err := f(jobService{server: s.server}); err == nil || connect.CodeOf(err) == connect.CodeFailedPrecondition && rpc.AsCLI(err, "", "").Code != "not-leader" {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	y.c.t.Error("nobody answers the scheduler")
}

// leading is the server that leads, nil without one.
func (y *yarn) leading() *running {
	for _, id := range y.c.every() {
		if s := y.c.server(id); s != nil && s.leading.Load() != nil {
			return s
		}
	}
	return nil
}

func (y *yarn) run() {
	const step = time.Second
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-y.stop:
			return
		case <-tick.C:
			y.connect()
			y.obey()
			y.work(step)
			y.drop()
			y.report()
		}
	}
}

func (y *yarn) connect() {
	s := y.leading()
	y.mu.Lock()
	defer y.mu.Unlock()
	if s == nil || s == y.server {
		return
	}
	y.server, y.stream = s, s.hub.enlist("yarn")
	y.enlists++
}

// obey carries directives out, in their order; what is older than the newest is refused.
func (y *yarn) obey() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.stream == nil {
		return
	}
	for len(y.stream.box) > 0 {
		d := (<-y.stream.box).GetDirective()
		if d == nil {
			continue
		}
		e, text := wire.Epoch(d.GetEpoch()), ""
		if order := e.Compare(y.epoch); order < 0 || order == 0 && d.GetSeq() <= y.seq {
			y.old++
			text = "it is older than the newest"
		} else {
			y.epoch, y.seq = e, d.GetSeq()
			y.carryOut(d)
		}
		if leading := y.server.leading.Load(); leading != nil {
			a := &headroomv1.DirectiveAck{Epoch: d.GetEpoch(), Seq: d.GetSeq(), Error: text}
			_ = leading.post(context.Background(), func() { leading.heed(a) })
		}
	}
}

func (y *yarn) carryOut(d *headroomv1.Directive) {
	if x := d.GetShare(); x != nil {
		clear(y.shares)
		text := ""
		for _, s := range x.GetJobs() {
			y.shares[s.GetId()] = s.GetContainers()
			text += fmt.Sprintf("%s=%d ", s.GetId(), s.GetContainers())
		}
		y.told = append(y.told, text)
	}
	if x := d.GetStop(); x != nil {
		for _, j := range y.jobs {
			if j.id == x.GetId() {
				j.stops = append(j.stops, x)
				j.stopped = j.elapsed
			}
		}
	}
}

// containers are what a job holds: its share, else an equal part.
func (y *yarn) containers(j *plantJob) uint32 {
	running := 0
	for _, x := range y.jobs {
		if !x.ended {
			running++
		}
	}
	if n, ok := y.shares[j.id]; ok {
		return n
	}
	return uint32(5 * len(y.c.all()) / max(1, running))
}

// work moves every job on by what its containers do under the caps of now.
func (y *yarn) work(step time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	speed := 0.0
	nodes := y.c.all()
	for _, n := range nodes {
		speed += min(1, n.look().effective.Watts()/200) / float64(len(nodes))
	}
	for _, j := range y.jobs {
		if j.ended {
			continue
		}
		n := y.containers(j)
		if y.shares[j.id] > 0 {
			j.most = max(j.most, n)
			if j.least == 0 || n < j.least {
				j.least = n
			}
		}
		j.elapsed += step
		j.work = min(float64(j.tasks-j.dropped), j.work+float64(n-1)*speed*step.Seconds()/10)
	}
}

// drop asks to drop what has not begun of a job that may stop, and ends those that are done.
func (y *yarn) drop() {
	y.mu.Lock()
	jobs := slices.Clone(y.jobs)
	y.mu.Unlock()
	for _, j := range jobs {
		if j.ended {
			continue
		}
		if n := len(j.stops); n > 0 {
			y.dropFrom(j, j.stops[n-1])
		}
		if j.completed()+j.dropped < j.tasks {
			continue
		}
		y.call(func(s jobService) error {
			_, err := s.FinishJob(context.Background(), connect.NewRequest(&headroomv1.FinishJobRequest{
				Id: j.id, State: headroomv1.JobState_JOB_STATE_DONE, Tasks: uint32(j.tasks), Done: uint32(j.completed()), RuntimeS: j.elapsed.Seconds(),
				Change: &headroomv1.Change{RequestId: "finish-" + j.id},
			}))
			return err
		})
		y.mu.Lock()
		j.ended = true
		y.mu.Unlock()
	}
}

// dropFrom drops as many as the stop leaves; first it asks for one too many, which must be refused.
func (y *yarn) dropFrom(j *plantJob, x *headroomv1.StopDirective) {
	may := int(x.GetTasks()-x.GetMinTasks()) - j.dropped
	begun := min(j.tasks-j.dropped, int(j.work)+int(y.containers(j)))
	may = min(may, j.tasks-j.dropped-begun)
	if may <= 0 {
		return
	}
	y.call(func(s jobService) error {
		last := uint32(j.tasks - 1)
		_, err := s.DropTasks(context.Background(), connect.NewRequest(&headroomv1.DropTasksRequest{Id: j.id, Tasks: []*headroomv1.TaskRange{{First: x.GetMinTasks() - 1, Last: last}}}))
		if err == nil {
			y.c.t.Errorf("%s: tasks were dropped below the floor", j.id)
		}
		return err
	})
	y.call(func(s jobService) error {
		last := uint32(j.tasks - 1 - j.dropped)
		r, err := s.DropTasks(context.Background(), connect.NewRequest(&headroomv1.DropTasksRequest{Id: j.id, Tasks: []*headroomv1.TaskRange{{First: last + 1 - uint32(may), Last: last}}}))
		if err != nil {
			return err
		}
		n := 0
		for _, d := range r.Msg.GetDropped() {
			n += int(d.GetLast() - d.GetFirst() + 1)
		}
		y.mu.Lock()
		j.dropped = n
		y.mu.Unlock()
		return nil
	})
}

func (y *yarn) report() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.server == nil || y.server.leading.Load() == nil {
		return
	}
	nodes := y.c.all()
	r := &headroomv1.ProgressReport{Engines: []*headroomv1.EngineReport{{Engine: "yarn", Containers: uint32(5 * len(nodes)), Overhead: 1}}}
	for _, j := range y.jobs {
		if j.ended {
			continue
		}
		n, elapsed, work := y.containers(j), j.elapsed.Seconds(), j.work
		on := map[string]uint32{}
		for i := range int(n) {
			on[nodes[i%len(nodes)].name]++
		}
		left := j.tasks - j.dropped - j.completed()
		r.Jobs = append(r.Jobs, &headroomv1.JobProgress{
			Id: j.id, State: headroomv1.JobState_JOB_STATE_RUNNING, Phase: headroomv1.JobPhase_JOB_PHASE_MAP, Tasks: uint32(j.tasks), Done: uint32(j.completed()),
			Running: min(n-1, uint32(left)), Pending: uint32(max(0, left-int(n-1))), Dropped: uint32(j.dropped), RuntimeS: &elapsed, Work: &work, Containers: n, RunningOn: on,
		})
	}
	d := y.server.leading.Load()
	_ = d.post(context.Background(), func() { d.board.report(r, time.Now()) })
}

func (y *yarn) ended() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return !slices.ContainsFunc(y.jobs, func(j *plantJob) bool { return !j.ended })
}

func TestCapStepSharesAndStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 900*units.Watt)
		c.addNodes(4)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(10 * time.Second)
		exact, half := &plantJob{id: "exact", tasks: 120, floor: 1}, &plantJob{id: "half", tasks: 120, floor: 0.5}
		y := newYarn(c, exact, half)
		time.Sleep(40 * time.Second)
		promised := func(id string) (j ledger.Job) { return c.newest().Jobs[id] }
		before := map[string]time.Duration{"exact": promised("exact").Uncapped, "half": promised("half").Uncapped}
		for id, at := range before { // 120 tasks of 10 s on 9 containers
			if at < 110*time.Second || at > 160*time.Second {
				t.Errorf("uncapped finish of %s is committed as %v", id, at)
			}
		}
		if _, err := setBudget(t.Context(), c, 440*units.Watt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		y.mu.Lock()
		if y.shares["exact"]+y.shares["half"] != 20 || y.shares["exact"] <= y.shares["half"] {
			t.Errorf("under the cap the shares are %v, told %q", y.shares, y.told)
		}
		shares := len(y.told)
		y.mu.Unlock()
		deadline := c.leader()
		c.kill(deadline.cfg.ID)
		c.leader()
		time.Sleep(12 * time.Second)
		for id, at := range before {
			if now := promised(id).Uncapped; now != at {
				t.Errorf("the next leader has %v for %s, %v were committed", now, id, at)
			}
		}
		y.mu.Lock()
		for _, text := range y.told[shares:] {
			if text == "" {
				t.Errorf("the next leader let the shares go: %q", y.told)
			}
		}
		y.mu.Unlock()
		c.until("the tolerant job has stopped early", 3*time.Minute, func() bool { return promised("half").Stop != nil })
		stop := *promised("half").Stop
		c.kill(c.leader().cfg.ID) // quorum is lost: nobody decides, nobody drops
		time.Sleep(5 * time.Second)
		c.start(deadline.cfg.ID)
		c.leader()
		c.until("both have ended", 10*time.Minute, y.ended)
		if j := promised("half"); j.Stop == nil || *j.Stop != stop || stop.MinTasks != 60 || j.Done < 60 || j.Done+j.DroppedTasks() != 120 || j.DroppedTasks() == 0 {
			t.Errorf("the tolerant job: stop %+v, then %+v; done %d, dropped %v", stop, j.Stop, j.Done, j.Dropped)
		}
		if j := promised("exact"); j.Stop != nil || j.Done != 120 || j.Dropped != nil {
			t.Errorf("the exact job: %+v", j)
		}
		y.mu.Lock()
		defer y.mu.Unlock()
		if half.stopped < before["half"] {
			t.Errorf("it stopped after %v, its uncapped finish is %v", half.stopped, before["half"])
		}
		if y.enlists < 3 || len(half.stops) == 0 || y.old > 0 {
			t.Errorf("%d streams, %d stops told, %d directives of leaderships that were over", y.enlists, len(half.stops), y.old)
		}
		for _, a := range c.leader().leading.Load().board.refusals {
			t.Errorf("refused: %s", a)
		}
	})
}

// A new leader lets the shares of the one before stand until it knows the jobs; after
// half a minute it goes by what it has.
func TestNewLeaderLeavesSharesUntilItKnows(t *testing.T) {
	t.Parallel()
	look := func(a decider, at time.Duration, elapsed float64, power units.Power) (sharing, bool) {
		seen := seenJobs{engines: map[string]*headroomv1.EngineReport{"yarn": {Engine: "yarn", Containers: 20, Overhead: 1}}}
		for _, id := range []string{"a", "b"} {
			work := elapsed / 2
			seen.jobs = append(seen.jobs, seenJob{
				job:      ledger.Job{ID: id, Name: id, Engine: "yarn", State: ledger.JobAccepted, Floor: 0.5, Uncapped: 100 * time.Second},
				progress: &headroomv1.JobProgress{Tasks: 200, Done: uint32(work), Work: &work, Running: 9, Pending: 100, RuntimeS: &elapsed, Containers: 10, Phase: headroomv1.JobPhase_JOB_PHASE_MAP},
				power:    power, full: power * 2,
			})
		}
		x, ok := a.step(at, seen).shares["yarn"]
		return x, ok
	}
	blind := newArbiter()
	for at := time.Duration(0); at <= arbiterPatience; at += jobsEvery {
		if x, ok := look(blind, at, 40+at.Seconds(), 0); ok != (at == arbiterPatience) {
			t.Errorf("at %v, with no cap known: %+v, %v", at, x, ok)
		}
	}
	knowing := newArbiter()
	for at := time.Duration(0); at < arbiterPatience; at += jobsEvery {
		if x, ok := look(knowing, at, 40+at.Seconds(), 100*w); ok {
			if len(x.jobs) != 2 || x.jobs[0].GetContainers()+x.jobs[1].GetContainers() != 20 || !strings.Contains(x.reason, "20 containers") {
				t.Errorf("at %v: %+v", at, x)
			}
			return
		}
	}
	t.Error("it knows the jobs, and shares nothing")
}

// Once a job is done, both estimators are held against its true runtime; of one that
// has failed nothing is said.
func TestErrorsOfFinishTimes(t *testing.T) {
	t.Parallel()
	a := newArbiter()
	var out decidedJobs
	for at := 5.0; at < 100; at += 5 {
		seen := seenJobs{}
		for _, id := range []string{"done", "failed"} {
			seen.jobs = append(seen.jobs, seenJob{
				job:      ledger.Job{ID: id, Name: id, Engine: "yarn", State: ledger.JobAccepted, Floor: 1},
				progress: &headroomv1.JobProgress{Tasks: 200, Done: uint32(max(0, 2*at-10)), Work: new(2 * at), Running: 20, RuntimeS: new(at), Containers: 20, Phase: headroomv1.JobPhase_JOB_PHASE_MAP},
				power:    100 * w, full: 100 * w,
			})
		}
		if out = a.step(time.Duration(at)*time.Second, seen); len(out.errors) != 0 {
			t.Fatalf("at %v s: %v", at, out.errors)
		}
	}
	out = a.step(100*time.Second, seenJobs{ended: map[string]time.Duration{"done": 110 * time.Second, "stranger": time.Second}})
	if got := out.errors["done"]; len(out.errors) != 1 || len(got) != 2 || got[0].GetPolicy() != "learned" || got[1].GetPolicy() != "paper" {
		t.Fatalf("%v", out.errors)
	}
	for _, e := range out.errors["done"] {
		if e.GetMeanError() < 0.01 || e.GetMeanError() > 0.15 || e.GetSamples() < 15 || e.GetSamples() > 19 {
			t.Errorf("%v", e)
		}
	}
	if out = a.step(105*time.Second, seenJobs{ended: map[string]time.Duration{"done": 100 * time.Second}}); len(out.errors) != 0 {
		t.Errorf("told twice: %v", out.errors)
	}
}

// Whatever a scheduler reports, the arbiters answer, and what they decide about a
// stop is never below the floor.
func TestArbitersTakeAnyReport(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := newArbiter()
		number := rapid.SampledFrom([]uint32{0, 1, 2, 7, 40, 1000, math.MaxInt32, math.MaxUint32})
		odd := rapid.SampledFrom([]float64{0, -1, 0.5, 1, 39.5, 1e6, 1e300, math.Inf(1), math.NaN()})
		watts := rapid.SampledFrom([]units.Power{0, 1, 100 * w, 200 * w, ledger.MaxPower})
		for i := range rapid.IntRange(1, 12).Draw(t, "looks") {
			seen := seenJobs{policy: rapid.SampledFrom(append(ledger.ContainerPolicies(), "")).Draw(t, "policy"), engines: map[string]*headroomv1.EngineReport{}}
			if rapid.Bool().Draw(t, "reported") {
				seen.engines["yarn"] = &headroomv1.EngineReport{Engine: "yarn", Containers: number.Draw(t, "all") % 5000, Overhead: number.Draw(t, "overhead") % 3}
			}
			for n := range rapid.IntRange(0, 3).Draw(t, "jobs") {
				p := &headroomv1.JobProgress{
					Tasks: number.Draw(t, "tasks"), Done: number.Draw(t, "done"), Running: number.Draw(t, "running"), Pending: number.Draw(t, "pending"),
					Dropped: number.Draw(t, "dropped"), Containers: number.Draw(t, "containers"), Phase: headroomv1.JobPhase(rapid.Int32Range(-1, 9).Draw(t, "phase")),
				}
				if rapid.Bool().Draw(t, "more") {
					p.RuntimeS, p.Work, p.Reduced = new(odd.Draw(t, "runtime")), new(odd.Draw(t, "work")), new(odd.Draw(t, "reduced"))
				}
				j := ledger.Job{ID: fmt.Sprint("j", n), Name: "wc", State: ledger.JobAccepted, Engine: rapid.SampledFrom([]string{"", "yarn"}).Draw(t, "engine"), Floor: 0.5}
				seen.jobs = append(seen.jobs, seenJob{job: j, progress: p, power: watts.Draw(t, "power"), full: watts.Draw(t, "full")})
			}
			out := a.step(time.Duration(i)*jobsEvery, seen)
			for _, s := range out.stops {
				if s.MinTasks < ledger.LeastTasks(0.5, s.Tasks) {
					t.Fatalf("stop %+v", s)
				}
			}
			for _, c := range commandsFor(seen, out) {
				if _, err := c.Encode(); err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
			}
			for _, o := range out.outlooks {
				for _, x := range []*float64{o.FinishS, o.FinishLowS, o.FinishHighS, o.UncappedS, o.CapShare} {
					if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0) || *x < 0) {
						t.Fatalf("outlook %v", o)
					}
				}
			}
		}
	})
}
