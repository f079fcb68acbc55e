// Claims: what the arbiter decides of jobs is committed before it is told, told
// once, told again to whoever comes later and when it was refused, and forgotten
// with the job; caps count as read back; watts go before jobs; a refusal and an
// engine that cannot share are alarms in words.
package leading

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/streams"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// scripted decides as it is told, and remembers what it was shown.
type scripted struct {
	mu   sync.Mutex
	seen []arbitration.Seen
	say  arbitration.Decided
}

func (s *scripted) Step(_ time.Duration, seen arbitration.Seen) arbitration.Decided {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seen)
	return s.say
}

func (s *scripted) set(say arbitration.Decided) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say = say
}

func (s *scripted) looks() []arbitration.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func runsNow(id string, on map[string]uint32) *headroomv1.JobProgress {
	return &headroomv1.JobProgress{Id: id, State: headroomv1.JobState_JOB_STATE_RUNNING, Tasks: 40, Done: 10, Running: 4, RunningOn: on}
}

// yarnJob accepts a job of YARN's second queue.
func yarnJob(id string) ledger.Command {
	return ledger.Command{Job: &ledger.Job{ID: id, Name: "wc", State: ledger.JobAccepted, Engine: "yarn", Queue: "root.q2", Floor: 0.75}}
}

func shared(id string, containers uint32) *headroomv1.JobShare {
	return &headroomv1.JobShare{Id: id, Containers: containers}
}

// onBoard lets a scheduler report, as Direct would.
func (l *Loop) onBoard(t *testing.T, r *headroomv1.ProgressReport) {
	t.Helper()
	if err := l.Ask(t.Context(), func(*Known) { l.jobs.report(r) }); err != nil {
		t.Fatal(err)
	}
}

func (l *Loop) must(t *testing.T, c ledger.Command) {
	t.Helper()
	if a, err := l.Request(t.Context(), &leader.Request{Command: c, Quiet: true}); err != nil || a.Err != nil {
		t.Fatal(a.Err, err)
	}
}

func (o *outbox) takeOrders() []streams.Order {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.orders = nil }()
	return o.orders
}

func subjects(orders []streams.Order) (out []string) {
	for _, o := range orders {
		out = append(out, o.Subject)
	}
	return out
}

func yarnReport(trouble string, jobs ...*headroomv1.JobProgress) *headroomv1.ProgressReport {
	return &headroomv1.ProgressReport{Jobs: jobs, Engines: []*headroomv1.EngineReport{{Engine: "yarn", Containers: 28, Overhead: 1, Trouble: trouble}}}
}

func TestDecisionsAreCommittedThenTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		brain := &scripted{}
		d.must(t, yarnJob("j1"))
		d.must(t, ledger.Command{Job: &ledger.Job{ID: "j2", State: ledger.JobAccepted}})
		look := func(trouble string) {
			t.Helper()
			for range 5 { // the node's heartbeats and the scheduler's reports go on
				if err := d.Hear(t.Context(), beat(uint64(time.Now().UnixNano()), 150*w, 2)); err != nil {
					t.Fatal(err)
				}
				d.onBoard(t, yarnReport(trouble, runsNow("j1", map[string]uint32{"n01": 3, "elsewhere": 9}), runsNow("j2", nil), runsNow("stranger", nil)))
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		if err := d.Ask(t.Context(), func(*Known) { d.jobs.decide = brain }); err != nil {
			t.Fatal(err)
		}
		finish := 80.0
		brain.set(arbitration.Decided{
			Uncapped: map[string]time.Duration{"j1": 100 * time.Second},
			Stops:    []arbitration.Stop{{StopJob: ledger.StopJob{ID: "j1", Tasks: 40, MinTasks: 30}, Reason: "100 s are over"}},
			Shares:   map[string]arbitration.Sharing{"yarn": {Jobs: []*headroomv1.JobShare{shared("j1", 12)}, Reason: "because"}, "spark": {Reason: "nobody reports it"}},
			Outlooks: map[string]*headroomv1.JobOutlook{"j1": {FinishS: &finish, Why: "it is slow"}},
		})
		before := len(log.entries)
		look("")
		seen := brain.looks()[len(brain.looks())-1]
		if len(seen.Jobs) != 2 || seen.Jobs[0].Job.ID != "j1" || seen.Jobs[0].Power != 150*w || seen.Jobs[0].Full != 200*w || seen.Jobs[1].Full != 0 || len(seen.Engines) != 1 {
			t.Errorf("the arbiter saw %+v", seen)
		}
		kinds := ""
		for _, c := range log.entries[before:] {
			if c.SetUncapped != nil {
				kinds += "uncapped "
			}
			if c.StopJob != nil {
				kinds += "stop:" + c.Reason + " "
			}
		}
		if kinds != "uncapped stop:100 s are over " {
			t.Errorf("committed %q", kinds)
		}
		orders := out.takeOrders()
		if got := subjects(orders); !slices.Equal(got, []string{"the shares of yarn", "the early stop of j1"}) {
			t.Fatalf("told %q", got)
		}
		if s := orders[1].Stop; s.GetTasks() != 40 || s.GetMinTasks() != 30 || !strings.Contains(orders[1].Reason, "100 s are over") || orders[0].Reason != "because" {
			t.Errorf("told %+v", orders)
		}
		var shown *headroomv1.Job
		_ = d.Ask(t.Context(), func(*Known) { d.machine.View(func(s *ledger.State) { shown = d.known.Job(s.Jobs["j1"]) }) })
		if shown.GetOutlook().GetFinishS() != 80 || shown.GetUncappedS() != 100 || shown.GetStop().GetMinTasks() != 30 || shown.GetFloor() != 0.75 || shown.GetEngine() != "yarn" {
			t.Errorf("shown %v", shown)
		}

		// The same again is neither committed nor told; a change is; noise is not.
		before = len(log.entries)
		again := brain.say
		again.Uncapped = map[string]time.Duration{"j1": 101 * time.Second}
		brain.set(again)
		look("")
		for _, c := range log.entries[before:] {
			if c.Tick == nil {
				t.Errorf("committed %+v", c)
			}
		}
		if got := out.takeOrders(); len(got) != 0 {
			t.Errorf("told again %+v", got)
		}
		brain.set(arbitration.Decided{Shares: map[string]arbitration.Sharing{"yarn": {Jobs: []*headroomv1.JobShare{shared("j1", 15)}, Reason: "more"}}})
		look("")
		if got := out.takeOrders(); len(got) != 1 || got[0].Share.GetJobs()[0].GetContainers() != 15 {
			t.Errorf("told %+v", got)
		}

		// What was refused is told again after the next look.
		_ = d.Ask(t.Context(), func(*Known) { d.jobs.tellAgain("the early stop of j1"); d.jobs.tellAgain("the shares of yarn") })
		look("")
		if got := subjects(out.takeOrders()); len(got) != 2 {
			t.Errorf("after the refusals told %q", got)
		}
		// An engine that cannot share is told nothing, is an alarm, and is told anew once it can.
		look("the resource manager does not answer")
		if got := out.takeOrders(); len(got) != 0 {
			t.Errorf("told an engine in trouble %+v", got)
		}
		if seen := brain.looks()[len(brain.looks())-1]; len(seen.Engines) != 0 || len(seen.Jobs) != 2 {
			t.Errorf("of an engine in trouble the arbiter saw %+v", seen)
		}
		alarms := ""
		_ = d.Ask(t.Context(), func(*Known) { alarms = fmt.Sprint(d.known.own()) })
		if !strings.Contains(alarms, "engine-trouble") || !strings.Contains(alarms, "does not answer") {
			t.Errorf("alarms %s", alarms)
		}
		look("")
		if got := subjects(out.takeOrders()); !slices.Equal(got, []string{"the shares of yarn"}) {
			t.Errorf("after the trouble told %q", got)
		}
		// An outlook that nobody renews is told no more.
		brain.set(arbitration.Decided{})
		look("")
		_ = d.Ask(t.Context(), func(*Known) { d.machine.View(func(s *ledger.State) { shown = d.known.Job(s.Jobs["j1"]) }) })
		if shown.Outlook != nil {
			t.Errorf("an old outlook is shown: %v", shown.GetOutlook())
		}
		// With the job its stop is over.
		d.must(t, ledger.Command{Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobDone, Tasks: 40, Done: 31}})
		look("")
		_ = d.Ask(t.Context(), func(*Known) {
			if len(d.jobs.told) != 1 || !out.gone("the early stop of j1") || out.gone("the shares of yarn") {
				t.Errorf("remembered %v", d.jobs.told)
			}
		})
	})
}

// P5: many commits about jobs on a slow log hold no tick up by more than one of them.
// The errors of a job's finish times are told as long as the log knows the job, and
// the arbiter hears of the true runtime.
func TestEstimateErrorsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		brain := &scripted{}
		d.must(t, yarnJob("j1"))
		if err := d.Ask(t.Context(), func(*Known) { d.jobs.decide = brain }); err != nil {
			t.Fatal(err)
		}
		d.onBoard(t, yarnReport("", runsNow("j1", nil)))
		time.Sleep(jobsEvery + time.Second)
		d.must(t, ledger.Command{Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobDone, Tasks: 40, Done: 40, Runtime: 80 * time.Second}})
		some := []*headroomv1.EstimateError{{Policy: "learned", MeanError: 0.03, Samples: 9}}
		brain.set(arbitration.Decided{Errors: map[string][]*headroomv1.EstimateError{"j1": some, "forgotten": some}})
		time.Sleep(jobsEvery + time.Second)
		brain.set(arbitration.Decided{})
		time.Sleep(jobsEvery + time.Second)
		looks := brain.looks()
		if last := looks[len(looks)-1]; last.Ended["j1"] != 80*time.Second || len(last.Jobs) != 0 {
			t.Errorf("the arbiter saw %+v", last)
		}
		var shown *headroomv1.Job
		kept := 0
		_ = d.Ask(t.Context(), func(*Known) {
			d.machine.View(func(s *ledger.State) { shown = d.known.Job(s.Jobs["j1"]) })
			kept = len(d.jobs.errors)
		})
		if got := shown.GetEstimateErrors(); len(got) != 1 || got[0].GetSamples() != 9 || kept != 1 {
			t.Errorf("shown %v, %d kept", got, kept)
		}
	})
}

func TestWattsGoBeforeJobs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, _, _ := admitted(t)
		brain := &scripted{say: arbitration.Decided{Uncapped: map[string]time.Duration{}}}
		var jobs []*headroomv1.JobProgress
		for i := range 60 {
			id := fmt.Sprintf("j%02d", i)
			d.must(t, yarnJob(id))
			jobs = append(jobs, runsNow(id, nil))
			brain.say.Uncapped[id] = time.Minute
		}
		log.set(func(l *scriptedLog) { l.slow = 150 * time.Millisecond })
		d.onBoard(t, yarnReport("", jobs...))
		_ = d.Ask(t.Context(), func(*Known) { d.jobs.decide = brain })
		began, ticks := time.Now(), log.ticks()
		known := func() (n int) {
			d.machine.View(func(s *ledger.State) {
				for _, j := range s.Jobs {
					if j.Uncapped > 0 {
						n++
					}
				}
			})
			return n
		}
		for known() < 60 && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		if n := known(); n != 60 {
			t.Fatalf("%d of 60 are committed", n)
		}
		if want := int(took.Seconds()/1.4) - 1; log.ticks()-ticks < want {
			t.Errorf("%d ticks in %v, want %d at least", log.ticks()-ticks, took, want)
		}
		log.set(func(l *scriptedLog) { l.slow = 0 })
		time.Sleep(time.Second) // nothing is under way when the bubble ends
	})
}

// A decision that the log refuses is dropped and harms nobody; a log that leads no more ends the loop.
func TestRefusedDecisions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, out, _ := admitted(t)
		d.must(t, yarnJob("j1"))
		brain := &scripted{say: arbitration.Decided{Stops: []arbitration.Stop{
			{StopJob: ledger.StopJob{ID: "j1", Tasks: 40, MinTasks: 29}, Reason: "below its floor"}, {StopJob: ledger.StopJob{ID: "gone", Tasks: 40, MinTasks: 40}, Reason: "it has ended"},
		}}}
		_ = d.Ask(t.Context(), func(*Known) { d.jobs.decide = brain })
		for range 6 {
			d.onBoard(t, yarnReport("", runsNow("j1", nil)))
			time.Sleep(time.Second)
		}
		if got := out.takeOrders(); len(got) != 0 || len(brain.looks()) == 0 {
			t.Errorf("told %+v after %d looks", got, len(brain.looks()))
		}
		d.machine.View(func(s *ledger.State) {
			if s.Jobs["j1"].Stop != nil {
				t.Errorf("stopped: %+v", s.Jobs["j1"].Stop)
			}
		})
	})
}

// What a scheduler says to an order that another of its subject has replaced counts neither for nor against the newer one; an
// order that is told again to a scheduler that came later is the same one.
func TestLateAnswersAreOfTheirOwnOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		h := streams.New("c1")
		h.Lead(d.epoch)
		ratio := func(theta float64) streams.Order {
			return streams.Order{Subject: "the drop ratio of j1", Deflate: &headroomv1.DeflateDirective{Id: "j1", Theta: theta}}
		}
		answers := func(seq uint64, text string) {
			d.jobs.acknowledge(&headroomv1.DirectiveAck{Epoch: wire.EpochMessage(d.epoch), Seq: seq, Error: text})
		}
		err := d.Ask(t.Context(), func(*Known) {
			d.jobs.schedulers = h.Schedulers
			h.Schedulers.PushOrders(d.epoch, []streams.Order{ratio(0.1)})
			h.Schedulers.PushOrders(d.epoch, []streams.Order{ratio(0.2)})
			answers(1, "")
			if len(d.jobs.reports.acked) != 0 {
				t.Errorf("the answer to the first order counts for the second: %v", d.jobs.reports.acked)
			}
			h.Schedulers.Open() // the second order again, as 3
			answers(2, "")
			if !d.jobs.reports.acked["the drop ratio of j1"] {
				t.Error("the second order is not acknowledged")
			}
			answers(1, "no such job")
			answers(3, "")
			if len(d.jobs.reports.refusals) != 0 {
				t.Errorf("refused are %v", d.jobs.reports.refusals)
			}
			answers(3, "no such job")
			if len(d.jobs.reports.refusals) != 1 {
				t.Error("a refusal of the order in force is lost")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A refusal stays an alarm until what it is about has been carried out, whatever else is acknowledged.
func TestRefusalsAreRemembered(t *testing.T) {
	t.Parallel()
	b, e := newJobReports(), lease.Epoch{Incarnation: 1, Term: 4}
	ack := func(term, seq uint64, subject, text string) bool {
		return b.ack(e, &headroomv1.DirectiveAck{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: term}, Seq: seq, Error: text}, subject)
	}
	if ack(3, 1, "the shares of yarn", "old") || !ack(4, 2, "the shares of yarn", "no such queue") || ack(4, 3, "", "") || ack(4, 4, "the early stop of j1", "") {
		t.Error("refusals are told wrongly")
	}
	if len(b.refusals) != 1 || b.refusals["the shares of yarn"] != "no such queue" || b.refusal != "" {
		t.Errorf("%+v", b)
	}
	if ack(4, 5, "the shares of yarn", "") || len(b.refusals) != 0 {
		t.Errorf("after it was carried out: %v", b.refusals)
	}
}

// An acknowledgement of another leadership says nothing about this one's directives.
func TestAcknowledgementsOfThisLeadership(t *testing.T) {
	t.Parallel()
	b, e := newJobReports(), lease.Epoch{Incarnation: 1, Term: 4}
	b.ack(e, &headroomv1.DirectiveAck{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 3}, Seq: 500}, "")
	b.ack(e, &headroomv1.DirectiveAck{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 4}, Seq: 2, Error: "no such node"}, "")
	if b.newestAcked != 0 || b.newestRefused != 2 {
		t.Errorf("acknowledged %d, refused %d", b.newestAcked, b.newestRefused)
	}
}
