// Claims: a job's promises survive the leader that made them; ExplainJob answers with the job
// and what was done about it.
package coordinator

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/leading"
	"headroom/coordinator/streams"
	"headroom/ledger"
	"headroom/units"
)

// scripted decides as it is told.
type scripted struct {
	mu  sync.Mutex
	say arbitration.Decided
}

func (s *scripted) Step(time.Duration, arbitration.Seen) arbitration.Decided {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.say
}

func (s *scripted) set(say arbitration.Decided) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say = say
}

func runsNow(id string, on map[string]uint32) *headroomv1.JobProgress {
	return &headroomv1.JobProgress{Id: id, State: headroomv1.JobState_JOB_STATE_RUNNING, Tasks: 40, Done: 10, Running: 4, RunningOn: on}
}

func yarnReport(trouble string, jobs ...*headroomv1.JobProgress) *headroomv1.ProgressReport {
	return &headroomv1.ProgressReport{Jobs: jobs, Engines: []*headroomv1.EngineReport{{Engine: "yarn", Containers: 28, Overhead: 1, Trouble: trouble}}}
}

func diasReport(jobs ...*headroomv1.JobProgress) *headroomv1.ProgressReport {
	return &headroomv1.ProgressReport{Jobs: jobs, Discipline: "dias", Classes: []*headroomv1.ClassPoint{{Name: "high", SprintAfterS: new(65.0)}, {Name: "low", Theta: 0.2}}}
}

// fitted is a cluster whose servers are changed before they start.
func fitted(t *testing.T, n int, fit func(*server)) *cluster {
	t.Helper()
	c := newCluster(t, 0, 700*units.Watt)
	c.fit = fit
	for i := range n {
		c.ids = append(c.ids, fmt.Sprintf("c%d", i+1))
	}
	c.first = slices.Clone(c.ids)
	for _, id := range c.ids {
		c.disks[id] = memory()
		c.start(id)
	}
	return c
}

// A job's promises survive the leader: estimate, stop and drops are the log's, the
// next leader tells the stop again; drops are committed once, never beyond the floor.
func TestPromisesSurviveTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		brain := &scripted{}
		c := fitted(t, 3, func(s *server) { s.newDecider = func() arbitration.Decider { return brain } })
		c.leader()
		jobs := func() jobService { return jobService{server: c.leader().server} }
		if _, err := jobs().CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{
			Id: "j1", Name: "wc", Engine: "yarn", Queue: "root.q2", Floor: 0.75,
		}})); err != nil {
			t.Fatal(err)
		}
		drop := func(first, last uint32) (string, error) {
			r, err := jobs().DropTasks(t.Context(), connect.NewRequest(&headroomv1.DropTasksRequest{Id: "j1", Tasks: []*headroomv1.TaskRange{{First: first, Last: last}}}))
			if err != nil {
				return "", err
			}
			text := ""
			for _, x := range r.Msg.GetDropped() {
				text += fmt.Sprintf("%d-%d ", x.GetFirst(), x.GetLast())
			}
			return text, nil
		}
		if _, err := drop(39, 39); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "no early stop") {
			t.Errorf("a drop without a stop: %v", err)
		}
		brain.set(arbitration.Decided{
			Uncapped: map[string]time.Duration{"j1": 100 * time.Second},
			Stops:    []arbitration.Stop{{StopJob: ledger.StopJob{ID: "j1", Tasks: 40, MinTasks: 30}, Reason: "100 s are over"}},
		})
		report := func() {
			l := c.leader().requests.loop.Load()
			_ = l.Post(t.Context(), func(k *leading.Known) { k.ReportJobs(yarnReport("", runsNow("j1", nil))) })
		}
		told := func(s *streams.Scheduler) (seen []*headroomv1.Directive) {
			for len(s.Box()) > 0 {
				if d := (<-s.Box()).GetDirective(); d.GetStop() != nil {
					seen = append(seen, d)
				}
			}
			return seen
		}
		scheduler := c.leader().streams.Schedulers.Open()
		for range 8 {
			report()
			time.Sleep(time.Second)
		}
		if got := told(scheduler); len(got) != 1 || got[0].GetStop().GetMinTasks() != 30 {
			t.Fatalf("told %v", got)
		}
		if got, err := drop(32, 39); err != nil || got != "32-39 " {
			t.Errorf("dropped %q, %v", got, err)
		}
		if _, err := drop(20, 22); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "floor") {
			t.Errorf("beyond the floor: %v", err)
		}

		brain.set(arbitration.Decided{}) // the next arbiter knows nothing
		old := c.leader()
		c.kill(old.cfg.ID)
		c.until("another leads", 30*time.Second, func() bool {
			for _, id := range c.every() {
				if s := c.server(id); s != nil && s.requests.leads() {
					return true
				}
			}
			return false
		})
		again := c.leader().streams.Schedulers.Open()
		time.Sleep(2 * time.Second)
		if got := told(again); len(got) != 1 || got[0].GetSeq() == 0 || got[0].GetStop().GetMinTasks() != 30 {
			t.Errorf("the next leader told %v", got)
		}
		// A stream that opens later is told, too.
		if got := told(c.leader().streams.Schedulers.Open()); len(got) != 1 {
			t.Errorf("a scheduler that reconnects is told %v", got)
		}
		var shown *headroomv1.Job
		out, err := jobs().ListJobs(t.Context(), connect.NewRequest(&headroomv1.ListJobsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		shown = out.Msg.GetJobs()[0]
		if shown.GetUncappedS() != 100 || shown.GetStop().GetReason() != "100 s are over" || len(shown.GetDropped()) != 1 || shown.GetDropped()[0].GetFirst() != 32 {
			t.Errorf("the next leader shows %v", shown)
		}
		if got, err := drop(32, 33); err != nil || got != "32-39 " { // asked again: its answer was lost
			t.Errorf("dropped %q, %v", got, err)
		}
		if _, err := drop(0, 2); err == nil {
			t.Error("the next leader goes below the floor")
		}
	})
}

// ExplainJob answers with the job and its moves, once it has ended with the tasks that its drop ratio left out too, and refuses
// one that is not there.
func TestExplainJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		c.addNodes(1)
		s := jobService{server: c.leader().server}
		c.allHeld(6 * time.Second)
		if _, err := s.CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j1", Class: "low", Rank: 1, Floor: 0.5, DeadlineS: new(90.0)}})); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []float64{-1, 1e12} {
			if _, err := s.CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j2", DeadlineS: &bad}})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a deadline of %v s: %v", bad, err)
			}
		}
		r, err := s.DeflateJob(t.Context(), connect.NewRequest(&headroomv1.DeflateJobRequest{Id: "j1", Theta: 0.2, Seed: 7, Reason: "class low"}))
		if err != nil || r.Msg.GetDeflation().GetTheta() != 0.2 || r.Msg.GetDeflation().GetReason() != "class low" || r.Msg.GetRevision() == 0 {
			t.Errorf("%v, %v", r, err)
		}
		if _, err = s.DeflateJob(t.Context(), connect.NewRequest(&headroomv1.DeflateJobRequest{Id: "j1", Theta: 0.6, Seed: 7})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("below the floor: %v", err)
		}
		if _, err = s.DeflateJob(t.Context(), connect.NewRequest(&headroomv1.DeflateJobRequest{Id: "j1", Theta: 0.1, Seed: 7})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("lowered: %v", err)
		}
		l := c.leader().requests.loop.Load()
		_ = l.Post(t.Context(), func(k *leading.Known) { k.ReportJobs(diasReport(runsNow("j1", map[string]uint32{"n01": 3}))) })
		time.Sleep(lookEvery + time.Second)
		x, err := s.ExplainJob(t.Context(), connect.NewRequest(&headroomv1.ExplainJobRequest{Id: "j1"}))
		if err != nil {
			t.Fatal(err)
		}
		if j := x.Msg.GetJob(); j.GetDeflation().GetTheta() != 0.2 || j.GetRank() != 1 || j.GetDeadlineS() != 90 || len(x.Msg.GetMoves()) != 1 || x.Msg.GetMeta().GetRevision() == 0 {
			t.Errorf("%v", x.Msg)
		}
		end := &headroomv1.FinishJobRequest{Id: "j1", State: headroomv1.JobState_JOB_STATE_DONE, Tasks: 45, Done: 33}
		if _, err = s.FinishJob(t.Context(), connect.NewRequest(end)); err != nil {
			t.Fatal(err)
		}
		if x, err = s.ExplainJob(t.Context(), connect.NewRequest(&headroomv1.ExplainJobRequest{Id: "j1"})); err != nil {
			t.Fatal(err)
		}
		if p := x.Msg.GetJob().GetProgress(); p.GetTasks() != 45 || p.GetDone() != 33 || p.GetDropped() != 12 {
			t.Errorf("ended with %v", p)
		}
		if _, err = s.ExplainJob(t.Context(), connect.NewRequest(&headroomv1.ExplainJobRequest{Id: "none"})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("of no job: %v", err)
		}
	})
}

// lookEvery is the time from one look of a leader at its jobs to the next.
const lookEvery = 5 * time.Second

// What admission has decided about a job survives the leader and a restart of every server; numbers that make no sense are refused
// with what is wrong.
func TestAdmissionSurvives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := fitted(t, 3, func(*server) {})
		c.leader()
		jobs := func() jobService { return jobService{server: c.leader().server} }
		commit := func(id string, a *headroomv1.Admission) error {
			_, err := jobs().CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: id, DeadlineS: new(90.0), Admission: a}}))
			return err
		}
		want := &headroomv1.Admission{
			Decision: "admitted", Slots: 4, Need: 3, Free: 9, WorkS: new(270.0), Confidence: new(0.9), Samples: 40, FinishUs: new(int64(5)), Reason: "4 of 9 free slots do",
		}
		if err := commit("j1", want); err != nil {
			t.Fatal(err)
		}
		for says, bad := range map[string]*headroomv1.Admission{
			`is "maybe"`:           {Decision: "maybe"},
			"at most 10000000":     {Decision: "admitted", Slots: 1 << 31},
			"slot seconds":         {Decision: "admitted", WorkS: new(math.Inf(1))},
			"it must be from 0 to": {Decision: "admitted", Confidence: new(-0.5)},
		} {
			if err := commit("j2", bad); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v", bad, err)
			}
		}
		shown := func() *headroomv1.Admission {
			r, err := jobs().ExplainJob(t.Context(), connect.NewRequest(&headroomv1.ExplainJobRequest{Id: "j1"}))
			if err != nil {
				t.Fatal(err)
			}
			return r.Msg.GetJob().GetAdmission()
		}
		if got := shown(); !proto.Equal(got, want) {
			t.Errorf("shown is %v", got)
		}
		dead := c.leader().cfg.ID
		c.kill(dead)
		c.until("another leads", 30*time.Second, func() bool {
			return slices.ContainsFunc(c.every(), func(id string) bool { s := c.server(id); return s != nil && s.requests.leads() })
		})
		if got := shown(); !proto.Equal(got, want) {
			t.Errorf("the next leader shows %v", got)
		}
		c.start(dead) // it reads its log from the beginning
		c.alike()
	})
}

// A job whose deadline is at risk is explained with what could be done about it, and the scheduler is told how many copies of its tasks
// may run.
func TestPromiseAtRiskIsExplained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		c.addNodes(1)
		s := jobService{server: c.leader().server}
		c.allHeld(6 * time.Second)
		if _, err := s.CommitJob(t.Context(), connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{
			Id: "j1", Class: "high", DeadlineS: new(30.0), SubmittedUs: time.Now().UnixMicro(), Admission: &headroomv1.Admission{Decision: "admitted", Slots: 4},
		}})); err != nil {
			t.Fatal(err)
		}
		scheduler := s.streams.Schedulers.Open()
		var copies *uint32
		for i := range 45 {
			done := uint32(i / 2)
			p := &headroomv1.JobProgress{
				Id: "j1", State: headroomv1.JobState_JOB_STATE_RUNNING, Tasks: 40, Done: done, Running: 4, Pending: 36 - done, RuntimeS: new(float64(i)), Work: new(float64(i) / 2),
				RunningOn: map[string]uint32{"n01": 4}, Containers: 4, Run: 1, Phase: headroomv1.JobPhase_JOB_PHASE_MAP, CopiesWanted: 2, CopiesSaveS: new(3.0),
			}
			report := &headroomv1.ProgressReport{Jobs: []*headroomv1.JobProgress{p}, Engines: []*headroomv1.EngineReport{{Engine: "local", Containers: 60}}}
			_ = s.requests.loop.Load().Post(t.Context(), func(k *leading.Known) { k.ReportJobs(report) })
			time.Sleep(time.Second)
			for len(scheduler.Box()) > 0 {
				for _, x := range (<-scheduler.Box()).GetDirective().GetShare().GetJobs() {
					copies = x.Copies
				}
			}
		}
		if copies == nil || *copies != 2 {
			t.Errorf("the scheduler was told of copies: %v", copies)
		}
		r, err := s.ExplainJob(t.Context(), connect.NewRequest(&headroomv1.ExplainJobRequest{Id: "j1"}))
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[headroomv1.MoveKind]*headroomv1.Candidate{}
		for _, x := range r.Msg.GetJob().GetOutlook().GetMove().GetCandidates() {
			kinds[x.GetKind()] = x
		}
		if len(kinds) != 5 || !kinds[headroomv1.MoveKind_MOVE_KIND_COPY].GetChosen() || kinds[headroomv1.MoveKind_MOVE_KIND_DEFLATE].GetWhy() != "its floor is all tasks" {
			t.Errorf("what could be done: %v", r.Msg.GetJob().GetOutlook().GetMove())
		}
	})
}
