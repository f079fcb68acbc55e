// Claims: jobs that a cap slows get containers by what they may still give up; one
// that has outrun its uncapped finish time stops early and never below its floor;
// a leader that is killed in between loses none of it; directives of a leadership
// that is over are not obeyed.
package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/leading"
	"headroom/coordinator/streams"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"

	"headroom/internal/testkit"
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
	stream  *streams.Scheduler
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
			if s == nil || !s.requests.leads() {
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
		if s := y.c.server(id); s != nil && s.requests.leads() {
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
	y.server, y.stream = s, s.streams.Schedulers.Open()
	y.enlists++
}

// obey carries directives out, in their order; what is older than the newest is refused.
func (y *yarn) obey() {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.stream == nil {
		return
	}
	for len(y.stream.Box()) > 0 {
		d := (<-y.stream.Box()).GetDirective()
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
		if l := y.server.requests.loop.Load(); l != nil {
			a := &headroomv1.DirectiveAck{Epoch: d.GetEpoch(), Seq: d.GetSeq(), Error: text}
			_ = l.Post(context.Background(), func(k *leading.Known) { k.Acknowledge(a) })
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
	if y.server == nil || !y.server.requests.leads() {
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
	if l := y.server.requests.loop.Load(); l != nil {
		_ = l.Post(context.Background(), func(k *leading.Known) { k.ReportJobs(r) })
	}
}

func (y *yarn) ended() bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return !slices.ContainsFunc(y.jobs, func(j *plantJob) bool { return !j.ended })
}

func TestCapStepSharesAndStops(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 900*units.Watt)
		c.addNodes(4)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(10 * time.Second)
		change := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: "stretch"}} // CAB, without the other levers
		if _, err := (clusterService{c.leader().server}).Change(t.Context(), connect.NewRequest(change)); err != nil {
			t.Fatal(err)
		}
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
		if text := c.alarmed("directive-refused"); text != "" {
			t.Errorf("refused: %s", text)
		}
	})
}
