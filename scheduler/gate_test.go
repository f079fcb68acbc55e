package scheduler

// Nothing of a job happens before what it depends on is in the coordinators' log, and a job whose folder does not answer
// holds no slot.

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/jobs/dispatch"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/leader"
)

func (c *log) RecordRun(_ context.Context, r *connect.Request[headroomv1.RecordRunRequest]) (*connect.Response[headroomv1.RecordRunResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails == nil {
		c.runs = append(c.runs, r.Msg)
	}
	return connect.NewResponse(&headroomv1.RecordRunResponse{}), c.fails
}

func (c *log) DeflateJob(_ context.Context, r *connect.Request[headroomv1.DeflateJobRequest]) (*connect.Response[headroomv1.DeflateJobResponse], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ratios = append(c.ratios, r.Msg)
	return connect.NewResponse(&headroomv1.DeflateJobResponse{}), c.fails
}

// wired lets a worker with four slots connect whose messages the test sees.
func (p *plant) wired() *session {
	s := newSession("n01")
	reply := make(chan error, 1)
	helloEvent{session: s, slots: 4, reply: reply}.apply(p.loop, p.now)
	return s
}

// told returns the attempts that a worker was told to start and to stop.
func told(s *session) (started, stopped []dispatch.Ref) {
	for {
		select {
		case m := <-s.out:
			if ref, err := refFromProto(m.GetTask().GetRef()); err == nil && m.GetTask() != nil {
				started = append(started, ref)
			}
			if ref, err := refFromProto(m.GetKill()); err == nil && m.GetKill() != nil {
				stopped = append(stopped, ref)
			}
		default:
			return started, stopped
		}
	}
}

// settle answers the commits that wait, with a refusal or without.
func (p *plant) settle(refused error) (n int) {
	for {
		select {
		case c := <-p.commits.runs:
			stepDone{c.job, func(l *loop, now time.Time) { c.recorded(l, now, refused) }}.apply(p.loop, p.now)
			n++
		case x := <-p.operations.queue:
			x.done(x.do()).apply(p.loop, p.now)
		default:
			return n
		}
	}
}

// No task starts before its run is recorded, no other job waits for that, and a run that is refused starts nothing and
// holds no slot.
func TestNothingBeforeItsRecord(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]error{"recorded": nil, "refused": &cli.Error{Code: "floor", Exit: cli.ExitRefused, Message: "below its floor"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, "off", "shared")
			s := p.wired()
			p.commit(p.record("j", "low", ""))
			p.pass(time.Second)
			if started, _ := told(s); len(started) != 0 {
				t.Fatalf("started before the record: %v", started)
			}
			if n := p.settle(refused); n != 1 {
				t.Fatalf("%d records", n)
			}
			p.pass(time.Second)
			p.settle(nil)
			started, _ := told(s)
			if refused == nil && len(started) != 4 || refused != nil && len(started) != 0 {
				t.Errorf("started %v", started)
			}
			if refused == nil {
				return
			}
			if v := p.core.Jobs(p.now)[0]; v.State != dispatch.Failed || !strings.Contains(v.Outcome, "below its floor") {
				t.Errorf("%v: %s", v.State, v.Outcome)
			}
			if w := p.core.Workers()[0]; w.Running != 0 {
				t.Errorf("%d slots are held", w.Running)
			}
		})
	}
}

// Dropped tasks are in the log before anything is stopped or ends because of them.
func TestDropsAreRecordedFirst(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	s := p.wired()
	r := p.record("j", "low", "min_tasks: 10%\ndeadline: 1m\n")
	p.commit(r)
	p.pass(time.Second)
	p.settle(nil)
	started, _ := told(s)
	for _, ref := range started[:1] {
		p.core.Result(p.now, "n01", ref, "")
	}
	p.pass(2 * time.Minute)
	p.core.Alive(p.now, "n01")
	if len(p.commits.runs) != 1 || len(p.commits.ended) != 0 {
		t.Fatalf("%d records, %d ends are to be committed", len(p.commits.runs), len(p.commits.ended))
	}
	c := <-p.commits.runs
	if _, stopped := told(s); len(stopped) != 0 {
		t.Errorf("stopped before the record: %v", stopped)
	}
	if n := c.drop; len(n) == 0 || c.run.GetNumber() != 1 {
		t.Errorf("recorded %v of run %d", n, c.run.GetNumber())
	}
	p.commits.runs <- c
	p.settle(nil)
	if _, stopped := told(s); len(stopped) == 0 || len(p.commits.ended) != 1 {
		t.Errorf("stopped %v, %d ends", stopped, len(p.commits.ended))
	}
}

// A job whose folder does not answer for a minute gives its slots to others, says so, and goes on when it answers.
func TestSilentFolderReleasesSlots(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	s := p.wired()
	p.commit(p.record("hung", "low", ""))
	p.pass(time.Second)
	p.settle(nil)
	started, _ := told(s)
	p.commit(p.record("good", "low", ""))
	var asked operation
	for range 8 {
		p.probe(p.now)
		select {
		case asked = <-p.operations.queue:
			asked.done(errNoAnswer).apply(p.loop, p.now)
		default:
		}
		p.pass(probeEvery)
	}
	p.settle(nil)
	if v := p.withSpec(p.now, p.core.Jobs(p.now)[0]); !strings.Contains(v.Progress.Trouble, "has not answered for") {
		t.Errorf("it says %q", v.Progress.Trouble)
	}
	_, stopped := told(s)
	if len(stopped) != len(started) {
		t.Fatalf("started %v, stopped %v", started, stopped)
	}
	for _, ref := range stopped {
		p.core.Stopped(p.now, "n01", ref)
	}
	p.pass(time.Second)
	p.settle(nil)
	p.pass(time.Second)
	p.settle(nil)
	if again, _ := told(s); len(again) != 4 || slices.ContainsFunc(again, func(r dispatch.Ref) bool { return r.Job != "good" }) {
		t.Errorf("the slots went to %v", again)
	}
	asked.done(nil).apply(p.loop, p.now)
	p.worker(8)
	p.pass(time.Second)
	p.settle(nil)
	if v := p.core.Jobs(p.now)[0]; v.ID != "hung" || v.Running == 0 {
		t.Errorf("after the folder has answered: %+v", v)
	}
}

// Where jobs run one after the other, one that waits for its folder ends.
func TestSilentFolderEndsJobOfAQueue(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "np")
	p.wired()
	p.commit(p.record("hung", "low", ""))
	p.pass(time.Second)
	p.settle(nil)
	p.core.Release(p.now, "hung", "its output folder has not answered for 1m0s")
	p.pass(time.Second)
	if p.state("hung") != "failed" {
		t.Errorf("hung is %s", p.state("hung"))
	}
}

// The drop ratios of two runs are two requests: a key of one must not swallow the other.
func TestRatiosOfTwoRuns(t *testing.T) {
	t.Parallel()
	f := &log{jobs: make(map[string]*headroomv1.Job)}
	c := newCommitter(identity{ID: "s1"}, leader.New([]string{"c1"}, rpc.PeersOver(f)), make(inbox, 8), discard())
	for _, number := range []uint32{1, 2} {
		if theta, why := c.commitTheta(t.Context(), dispatch.Deflate{Job: "j", Run: dispatch.RunRecord{Number: number, Theta: 0.1 * float64(number)}}); theta == 0 || why != "" {
			t.Fatalf("run %d: %v, %s", number, theta, why)
		}
	}
	if a, b := f.ratios[0].GetChange().GetRequestId(), f.ratios[1].GetChange().GetRequestId(); a == b || a == "" {
		t.Errorf("keys %q and %q", a, b)
	}
}

// A ratio that is not known to be committed is not in force: all tasks run.
func TestUncommittedRatioIsNotInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &log{jobs: make(map[string]*headroomv1.Job), fails: connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)}
		c := newCommitter(identity{ID: "s1"}, leader.New([]string{"c1"}, rpc.PeersOver(f)), make(inbox, 8), discard())
		if theta, why := c.commitTheta(t.Context(), dispatch.Deflate{Job: "j", Run: dispatch.RunRecord{Number: 1, Theta: 0.3}}); theta != 0 || !strings.Contains(why, "all tasks run") {
			t.Errorf("ratio %v in force, %q", theta, why)
		}
	})
}

// A run is recorded however long there is no leader, and drops in parts that the coordinators take.
func TestRunIsRecordedUntilItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &log{jobs: make(map[string]*headroomv1.Job), fails: rpc.NotLeader("", "")}
		c := newCommitter(identity{ID: "s1"}, leader.New([]string{"c1"}, rpc.PeersOver(f)), make(inbox, 8), discard())
		go func() {
			time.Sleep(time.Minute)
			f.set(nil, false)
		}()
		var drop []int
		for i := range 2*rangesAtOnce + 1 {
			drop = append(drop, 2*i)
		}
		if err := c.recordRun(t.Context(), runCommit{job: "j", run: &headroomv1.JobRun{Number: 1}, drop: wire.TaskRanges(drop)}); err != nil || len(f.runs) != 3 {
			t.Errorf("%v, recorded in %d parts", err, len(f.runs))
		}
		f.set(rpc.Refuse(connect.CodeFailedPrecondition, "floor", cli.ExitRefused, "below its floor", ""), false)
		if err := c.recordRun(t.Context(), runCommit{job: "j", run: &headroomv1.JobRun{Number: 1}}); err == nil {
			t.Error("a refusal was taken for a record")
		}
	})
}

// A repeated submission whose first answer was lost has the inputs of the first: a file that has appeared meanwhile must
// not change the tasks.
func TestRepeatedSubmissionKeepsItsInputs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		f.log.set(connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded), true)
		if _, err := f.submit("a", 1); exitOf(err) != cli.ExitUnknown {
			t.Fatal(err)
		}
		id := jobID("a", &headroomv1.Change{RequestId: "a"})
		first := f.log.jobs[id].GetInputs()
		f.log.set(nil, false)
		f.addInput("in99")
		j, err := f.submit("a", 1)
		if err != nil || j.GetInputs().GetTasks() != 10 || string(j.GetInputs().GetDigest()) != string(first.GetDigest()) {
			t.Errorf("%v: %v, first %v", err, j.GetInputs(), first)
		}
		if got, err := f.folders.lists.Read(id); err != nil || len(got.Names) != 10 {
			t.Errorf("%d inputs, %v", len(got.Names), err)
		}
	})
}

// Drops survive the scheduler: what the log has is what the next process has.
func TestRunComesBackFromTheLog(t *testing.T) {
	t.Parallel()
	began := time.UnixMicro(1_700_000_000_000_000)
	r := &record{run: dispatch.RunRecord{Number: 3, Began: began, Theta: 0.25, Seed: 1<<64 - 1, Decided: true, Why: "class", Sprint: true, SprintAfter: 90 * time.Second, Stopping: "high"}, started: &began}
	m := r.runToProto()
	m.Dropped = []byte{0b101, 0b10000000}
	back := &record{dir: jobdir.Folder{ID: "j"}}
	back.runFromProto(m)
	if back.run != r.run || !back.started.Equal(began) || !slices.Equal(back.dropped, []int{0, 2, 15}) || back.dir.Run != 3 {
		t.Errorf("%+v, started %v, dropped %v", back.run, back.started, back.dropped)
	}
}
