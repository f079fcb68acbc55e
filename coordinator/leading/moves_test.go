// Claims: a sprint timer that fires is looked at within a second; a sprint is in the log
// before the nodes and the scheduler hear of it, and ends with its job's run, under a leader
// that never saw the job too; a drop ratio is committed before it is told, told until the
// scheduler has acknowledged it, and what refuses it is said; the newest moves of a job are
// remembered, so many and no more, and forgotten with it.
package leading

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/units"
)

// localJob accepts a job of the scheduler's own.
func localJob(id string, floor float64) ledger.Command {
	return ledger.Command{Job: &ledger.Job{ID: id, Name: "wc", Class: "high", State: ledger.JobAccepted, Floor: floor, Submitted: time.Now().UnixMicro()}}
}

// sprintRoom holds n01 below its rating with joules to spare: the operator's max is 150 W.
func sprintRoom(t *testing.T, d *Loop) {
	t.Helper()
	most := 150 * w
	d.must(t, ledger.Command{Node: &ledger.SetNode{Node: "n01", Settings: ledger.Settings{Max: &most}}})
	d.must(t, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: 10 * units.Kilojoule, Refill: 1000 * w}})
}

// live keeps the node's heartbeats and the scheduler's reports going for so many seconds.
func live(t *testing.T, d *Loop, seconds int, report func() *headroomv1.ProgressReport) {
	t.Helper()
	for range seconds {
		alive(t, d)
		if r := report(); r != nil {
			if err := d.Ask(t.Context(), func(*Known) { d.jobs.report(r) }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
	}
	synctest.Wait()
}

// alive lets the node tell that it holds what it was granted last.
func alive(t *testing.T, d *Loop) {
	t.Helper()
	var n ledger.Node
	d.machine.View(func(s *ledger.State) { n = s.Nodes["n01"] })
	holds := max(n.Target, 80*w)
	if n.Sprint != nil {
		holds = n.Sprint.Cap
	}
	r := beat(uint64(time.Now().UnixNano()), holds, n.Seq)
	r.Highest.Epoch = d.epoch
	if n.Owes != "" && n.Sprint == nil { // it is back
		r.Ended = []ledger.SprintSpent{{ID: n.Owes, Spent: new(units.Joule)}}
	}
	if err := d.Hear(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func (l *Loop) jobShown(id string) (m *headroomv1.Job) {
	_ = l.Ask(context.Background(), func(*Known) { l.machine.View(func(s *ledger.State) { m = l.known.Job(s.Jobs[id]) }) })
	return m
}

func openSprints(d *Loop) (out []ledger.Sprint) {
	d.machine.View(func(s *ledger.State) {
		for _, p := range s.SprintsByTime() {
			if p.Open() && p.Ended == "" {
				out = append(out, p)
			}
		}
	})
	return out
}

func diasReport(jobs ...*headroomv1.JobProgress) *headroomv1.ProgressReport {
	return &headroomv1.ProgressReport{Jobs: jobs, Discipline: "dias", Classes: []*headroomv1.ClassPoint{{Name: "high", SprintAfterS: new(65.0)}, {Name: "low", Theta: 0.2}}}
}

func TestSprintTimerIsHeededAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		sprintRoom(t, d)
		d.must(t, localJob("j1", 1))
		j := runsNow("j1", map[string]uint32{"n01": 3})
		report := func() *headroomv1.ProgressReport { return diasReport(proto.CloneOf(j)) }
		live(t, d, 12, report)
		if got := openSprints(d); len(got) != 0 {
			t.Fatalf("before the timer: %+v", got)
		}
		if m := d.jobShown("j1").GetOutlook().GetMove(); m.GetKind() != headroomv1.MoveKind_MOVE_KIND_NONE || !m.GetAcknowledged() {
			t.Errorf("%v", m)
		}
		out.takeOrders()
		out.take()
		before := len(log.entries)
		j.SprintDue = true
		live(t, d, 2, report) // not five
		got := openSprints(d)
		if len(got) != 1 || got[0].Job != "j1" || got[0].Class != "high" || got[0].Domain != "site/lab" || got[0].Shares["n01"].Escrow <= 0 {
			t.Fatalf("%+v", got)
		}
		why := ""
		for _, c := range log.entries[before:] {
			if c.Sprint != nil {
				why = c.Reason
			}
		}
		orders := out.takeOrders()
		if len(orders) != 1 || orders[0].Subject != "the sprint of j1" || orders[0].Sprint.GetSprint() != got[0].ID || !slices.Equal(orders[0].Sprint.GetNodes(), []string{"n01"}) || !strings.Contains(why, "its sprint timer is due") {
			t.Errorf("committed for %q, told %+v", why, orders)
		}
		if g := out.take(); len(g) == 0 || g[len(g)-1].Grant.Sprint.ID != got[0].ID {
			t.Errorf("the node is granted %+v", g)
		}
		m := d.jobShown("j1").GetOutlook().GetMove()
		if m.GetKind() != headroomv1.MoveKind_MOVE_KIND_SPRINT || m.GetCostUj() <= 0 || m.GetAcknowledged() {
			t.Errorf("%v", m)
		}
		_ = d.Ask(t.Context(), func(*Known) {
			d.jobs.reports.ack(d.epoch, &headroomv1.DirectiveAck{Epoch: wire.EpochMessage(d.epoch), Seq: 1}, "the sprint of j1")
		})
		if m = d.jobShown("j1").GetOutlook().GetMove(); !m.GetAcknowledged() {
			t.Errorf("acknowledged, and yet %v", m)
		}
		// It goes on; nothing is told or granted twice.
		live(t, d, 6, report)
		if now := openSprints(d); len(now) != 1 || now[0].ID != got[0].ID || len(out.takeOrders()) != 0 {
			t.Errorf("%+v", now)
		}
		// The run is killed and its job goes back: the sprint ends and the scheduler hears it.
		j.State, j.SprintDue, j.RunningOn = headroomv1.JobState_JOB_STATE_QUEUED, false, nil
		live(t, d, 7, report)
		if now := openSprints(d); len(now) != 0 {
			t.Errorf("a job that waits sprints on: %+v", now)
		}
		if orders = out.takeOrders(); len(orders) != 1 || orders[0].Sprint.GetSprint() != "" {
			t.Errorf("told %+v", orders)
		}
		// It runs again, its timer fires again, and it ends: so does its sprint.
		j.State, j.SprintDue, j.RunningOn, j.Run = headroomv1.JobState_JOB_STATE_RUNNING, true, map[string]uint32{"n01": 3}, 2
		live(t, d, 15, report)
		if now := openSprints(d); len(now) != 1 || now[0].ID == got[0].ID {
			t.Fatalf("%+v", now)
		}
		d.must(t, ledger.Command{Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobDone, Tasks: 40, Done: 40}})
		live(t, d, 6, func() *headroomv1.ProgressReport { return diasReport() })
		ended := ""
		d.machine.View(func(s *ledger.State) {
			for _, p := range s.SprintsByTime() {
				ended = p.Ended
			}
		})
		if now := openSprints(d); len(now) != 0 || ended != "job j1 is done" {
			t.Errorf("%+v, %q", now, ended)
		}
	})
}

// A leader that has never heard of the job's run ends the sprint of one that is over at once,
// and that of a silent one once it ought to have heard; it tells open ones again.
func TestNewLeaderAndSprints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, out, _ := admitted(t)
		sprintRoom(t, d)
		live(t, d, 3, func() *headroomv1.ProgressReport { return nil })
		grant := func(id, job string) {
			t.Helper()
			for len(openSprints(d)) > 0 {
				alive(t, d)
				time.Sleep(time.Second)
			}
			for range 3 { // until the node is back
				alive(t, d)
				time.Sleep(time.Second)
			}
			d.must(t, ledger.Command{Sprint: &ledger.GrantSprint{ID: id, Job: job, Domain: "site/lab", Duration: 2 * time.Minute, Caps: []ledger.Target{{Node: "n01", Cap: 170 * w}}}})
		}
		quiet := func() *headroomv1.ProgressReport { return nil }
		d.must(t, localJob("over", 1))
		d.must(t, ledger.Command{Finish: &ledger.FinishJob{ID: "over", State: ledger.JobFailed}})
		grant("job/over/1", "over")
		live(t, d, 6, quiet)
		if got := openSprints(d); len(got) != 0 {
			t.Errorf("that of a job that is over goes on: %+v", got)
		}
		d.must(t, localJob("runs", 1))
		grant("job/runs/1", "runs")
		out.takeOrders()
		live(t, d, 6, func() *headroomv1.ProgressReport { return diasReport(runsNow("runs", map[string]uint32{"n01": 3})) })
		if got := out.takeOrders(); len(got) != 1 || got[0].Sprint.GetSprint() != "job/runs/1" || len(openSprints(d)) != 1 {
			t.Errorf("told %+v", got)
		}
		if m := d.jobShown("runs").GetOutlook().GetMove(); m.GetKind() != headroomv1.MoveKind_MOVE_KIND_SPRINT || !strings.Contains(m.GetReason(), "sprint job/runs/1 is in progress") {
			t.Errorf("%v", m)
		}
		live(t, d, 60, quiet)
		if got := openSprints(d); len(got) != 0 {
			t.Errorf("that of a job of which nothing is heard goes on: %+v", got)
		}
		// An operator's own, for a job that the log does not know, is theirs.
		grant("mine", "somebody")
		live(t, d, 12, quiet)
		if got := openSprints(d); len(got) != 1 {
			t.Errorf("the operator's was ended: %+v", got)
		}
	})
}

func TestDropRatiosAreCommittedThenTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		brain := &scripted{}
		d.must(t, localJob("j1", 0.5))
		if err := d.Ask(t.Context(), func(*Known) { d.jobs.decide = brain }); err != nil {
			t.Fatal(err)
		}
		j := runsNow("j1", map[string]uint32{"n01": 3})
		report := func() *headroomv1.ProgressReport { return diasReport(proto.CloneOf(j)) }
		move := func(kind headroomv1.MoveKind, mark string) map[string]arbitration.Move {
			return map[string]arbitration.Move{"j1": {Message: &headroomv1.JobMove{Kind: kind, Reason: mark, AtUs: time.Now().UnixMicro()}, Mark: mark}}
		}
		deflate := headroomv1.MoveKind_MOVE_KIND_DEFLATE
		say := func(theta float64) {
			brain.set(arbitration.Decided{
				Outlooks: map[string]*headroomv1.JobOutlook{"j1": {}}, Moves: move(deflate, fmt.Sprint(theta)),
				Deflates: []arbitration.Deflate{{DeflateJob: ledger.DeflateJob{ID: "j1", Theta: theta, Seed: 7}, Reason: "it is late"}},
			})
		}
		say(0.2)
		before := len(log.entries)
		live(t, d, 6, report)
		committed := 0
		for _, c := range log.entries[before:] {
			if c.DeflateJob != nil && c.Reason == "it is late" {
				committed++
			}
		}
		orders := out.takeOrders()
		if committed == 0 || len(orders) != 1 || orders[0].Deflate.GetTheta() != 0.2 || orders[0].Deflate.GetSeed() != 7 || !strings.Contains(orders[0].Reason, "it is late") {
			t.Fatalf("%d commits, told %+v", committed, orders)
		}
		_ = d.Ask(t.Context(), func(*Known) {
			d.jobs.reports.refusals["the drop ratio of j1"] = "the job is over"
			d.jobs.tellAgain("the drop ratio of j1")
		})
		if m := d.jobShown("j1").GetOutlook().GetMove(); m.GetAcknowledged() || m.GetRefused() != "the job is over; it is told again after the next look" {
			t.Errorf("%v", m)
		}
		live(t, d, 6, report)
		if orders = out.takeOrders(); len(orders) != 1 {
			t.Errorf("told again %+v", orders)
		}
		_ = d.Ask(t.Context(), func(*Known) {
			d.jobs.reports.ack(d.epoch, &headroomv1.DirectiveAck{Epoch: wire.EpochMessage(d.epoch), Seq: 9}, "the drop ratio of j1")
		})
		if m := d.jobShown("j1").GetOutlook().GetMove(); !m.GetAcknowledged() || m.GetRefused() != "" {
			t.Errorf("%v", m)
		}
		// One that the floor forbids is refused by the log, and the move says so.
		say(0.7)
		live(t, d, 6, report)
		if m := d.jobShown("j1").GetOutlook().GetMove(); !strings.Contains(m.GetRefused(), "its floor is 0.5 of them; at most 0.5 may be dropped") {
			t.Errorf("%v", m)
		}
		if x := d.jobShown("j1").GetDeflation(); x.GetTheta() != 0.2 || x.GetSeed() != 7 || x.GetReason() != "it is late" || len(out.takeOrders()) != 0 {
			t.Errorf("%v", x)
		}
		// What a job began with is not told to it.
		brain.set(arbitration.Decided{})
		d.must(t, localJob("j2", 0.5))
		d.must(t, ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "j2", Theta: 0.3, Seed: 1}})
		second := runsNow("j2", nil)
		second.Theta = new(0.3)
		live(t, d, 6, func() *headroomv1.ProgressReport { return diasReport(j, second) })
		if orders = out.takeOrders(); len(orders) != 0 {
			t.Errorf("told %+v", orders)
		}
	})
}

func TestMovesAreRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		d.must(t, localJob("j1", 0.5))
		err := d.Ask(t.Context(), func(*Known) {
			var answer []*headroomv1.JobMove // of an earlier moment: it stays as it is
			for i := range 200 {
				if i == 100 {
					answer = d.jobs.moves.all("j1")
				}
				kind := headroomv1.MoveKind_MOVE_KIND_CAP
				if i%2 > 0 {
					kind = headroomv1.MoveKind_MOVE_KIND_NONE
				}
				for range 3 { // looks that decide the same make one
					moves := map[string]arbitration.Move{
						"j1":   {Message: &headroomv1.JobMove{Kind: kind, Reason: fmt.Sprint(i), AtUs: int64(i), Candidates: []*headroomv1.Candidate{{Why: "late"}}}, Mark: ""},
						"gone": {Message: &headroomv1.JobMove{}, Mark: ""},
					}
					d.jobs.moves.keep(moves)
				}
			}
			kept := d.jobs.moves.all("j1")
			if len(kept) != movesKept || kept[0].GetReason() != "136" || kept[63].GetReason() != "199" || !kept[0].GetAcknowledged() || len(d.jobs.moves.moves) != 1 {
				t.Errorf("%d moves of %d jobs, %v to %v", len(kept), len(d.jobs.moves.moves), kept[0], kept[len(kept)-1])
			}
			for i, m := range kept {
				if want := i >= movesKept-weighedKept; (len(m.GetCandidates()) > 0) != want {
					t.Errorf("move %d of %d has candidates %v, want some: %v", i, len(kept), m.GetCandidates(), want)
				}
			}
			for i, m := range answer {
				if want := i >= len(answer)-weighedKept; (len(m.GetCandidates()) > 0) != want {
					t.Errorf("move %d of %d of an earlier answer has candidates %v later, want some: %v", i, len(answer), m.GetCandidates(), want)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A timer that fires before it is known where the job runs wakes the job loop when it is known, and once.
func TestTimerWakesOnceItsNodesAreKnown(t *testing.T) {
	t.Parallel()
	b, at := newJobReports(), time.Unix(1, 0)
	j := runsNow("j1", nil)
	j.SprintDue = true
	tell := func() bool { return b.report(diasReport(proto.CloneOf(j)), at) }
	if !tell() {
		t.Error("not woken for a job that has come")
	}
	if tell() {
		t.Error("woken for a job without nodes")
	}
	j.RunningOn = map[string]uint32{"n01": 1}
	if !tell() {
		t.Error("not woken once its node is known")
	}
	if tell() {
		t.Error("woken twice")
	}
	j.Run++
	if !tell() {
		t.Error("not woken for its next run")
	}
}
