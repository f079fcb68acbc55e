// Claim: the audit log names who asked, and what was refused.
package coordinator

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"

	"headroom/internal/testkit"
)

func TestAuditLogNamesWhoAsked(t *testing.T) {
	testkit.Unraced(t)
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		s := c.leader().server
		as := func(role, name, procedure string) (context.Context, error) {
			return s.guard.Admit(rpc.WithCaller(t.Context(), shown(role, name)), procedure, http.Header{})
		}
		scheduler, err := as("scheduler", "s1", headroomv1connect.JobServiceCommitJobProcedure)
		if err != nil {
			t.Fatal(err)
		}
		operator, err := as("operator", "mia", headroomv1connect.ClusterServiceSetBudgetProcedure)
		if err != nil {
			t.Fatal(err)
		}
		jobs := jobService{s}
		ann := func(id string) *headroomv1.Change {
			return &headroomv1.Change{RequestId: id, Actor: "submitter/ann", OnBehalfOf: "submitter/ann"}
		}
		last := func() string {
			all := c.newest().Events
			e := all[len(all)-1]
			return e.Actor + ": " + e.What
		}
		check := func(want string, err error) {
			t.Helper()
			if got := last(); err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q (%v)", got, want, err)
			}
		}
		_, err = jobs.CommitJob(scheduler, connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "a", Name: "a", Class: "low"}, Change: ann("1")}))
		check("submitter/ann via scheduler/s1: job a", err)
		_, err = jobs.FinishJob(scheduler, connect.NewRequest(&headroomv1.FinishJobRequest{Id: "a", State: headroomv1.JobState_JOB_STATE_CANCELLED, Change: ann("2")}))
		check("submitter/ann via scheduler/s1: job a cancelled", err)
		_, err = jobs.CommitJob(scheduler, connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "b", Name: "b", Class: "low"}, Change: &headroomv1.Change{RequestId: "3", Actor: "root"}}))
		check("scheduler/s1: job b", err)
		_, err = clusterService{s}.SetBudget(operator, connect.NewRequest(&headroomv1.SetBudgetRequest{Domain: "site/lab", BudgetUw: 600e6, Change: ann("4")}))
		check("mia: budget", err)
		for action, what := range map[headroomv1.SchedulerAction]string{
			headroomv1.SchedulerAction_SCHEDULER_ACTION_DRAIN: "scheduler drained", headroomv1.SchedulerAction_SCHEDULER_ACTION_RESUME: "scheduler resumed",
			headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED: "refused: cancel job a",
		} {
			r, err := jobs.RecordAction(scheduler, connect.NewRequest(&headroomv1.RecordActionRequest{Action: action, Detail: "cancel job a", Change: ann(what)}))
			check("submitter/ann via scheduler/s1: "+what, err)
			if r.Msg.GetRevision() == 0 {
				t.Error("no revision")
			}
		}
		for _, bad := range []*headroomv1.RecordActionRequest{{}, {Action: 99}, {Action: headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, Detail: strings.Repeat("x", detailMost+1)}} {
			if _, err := jobs.RecordAction(scheduler, connect.NewRequest(bad)); err == nil {
				t.Errorf("recorded %v", bad)
			}
		}
		// What a caller may not do is recorded once an hour, and a bundle has it.
		for range 3 {
			if _, err := as("observer", "eve", headroomv1connect.ClusterServiceSetBudgetProcedure); err == nil {
				t.Error("an observer sets a budget")
			}
		}
		check("eve: refused: budget set as role observer", nil)
		attempts := func() int {
			return len(slices.DeleteFunc(slices.Clone(c.newest().Events), func(e ledger.Event) bool { return e.Actor != "eve" }))
		}
		if n := attempts(); n != 1 {
			t.Errorf("%d entries about three attempts", n)
		}
		time.Sleep(2 * time.Hour)
		if _, err := as("observer", "eve", headroomv1connect.ClusterServiceSetBudgetProcedure); err == nil || attempts() != 2 {
			t.Errorf("%d entries after two hours", attempts())
		}
		found := ""
		for _, f := range (debugService{s}).bundle() {
			if data, err := f.make(t.Context()); err == nil && f.name == "events.json" {
				found = string(data)
			}
		}
		if !strings.Contains(found, "eve") || !strings.Contains(found, "scheduler drained") {
			t.Errorf("a bundle has the events %s", found)
		}
	})
}

// A server that does not lead has the leader record what it has refused.
func TestFollowersRefusalsAreRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		leader := c.leader().cfg.ID
		for _, id := range c.every() {
			if id == leader {
				continue
			}
			if _, err := c.server(id).guard.Admit(rpc.WithCaller(t.Context(), shown("observer", "eve")), headroomv1connect.BrakeServiceSetBrakeProcedure, http.Header{}); err == nil {
				t.Error("an observer sets the brake")
			}
		}
		for _, e := range c.newest().Events[len(c.newest().Events)-2:] {
			if !strings.HasPrefix(e.Actor, "eve") || e.What != "refused: brake set as role observer" {
				t.Errorf("recorded %+v", e)
			}
		}
	})
}
