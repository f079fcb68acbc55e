// Claim: a request id belongs to its caller and its content. Nobody's id answers, refuses or
// blocks the request of somebody else, and a used one never answers success for another request.
package coordinator

import (
	"context"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/access"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/units"
)

func TestRequestIDsOfCallers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(6 * time.Second)
		as := func(role, name string) context.Context {
			t.Helper()
			ctx, err := c.leader().guard.Admit(rpc.WithCaller(t.Context(), shown(role, name)), headroomv1connect.JobServiceListJobsProcedure, http.Header{})
			if err != nil {
				t.Fatal(err)
			}
			return ctx
		}
		change := func(id, user string) *headroomv1.Change { return &headroomv1.Change{RequestId: id, OnBehalfOf: user} }
		budget := func(name, id string, watts int64, dry bool) (*headroomv1.SetBudgetResponse, error) {
			r, err := clusterService{c.leader().server}.SetBudget(as("operator", name), connect.NewRequest(&headroomv1.SetBudgetRequest{
				Domain: "site/lab", BudgetUw: watts * 1e6, DryRun: dry, ConfirmUw: watts * 1e6, Change: change(id, ""),
			}))
			if err != nil {
				return nil, err
			}
			return r.Msg, nil
		}
		refused := func(what string, err error) {
			t.Helper()
			if e := rpc.AsCLI(err, "test", "addr"); e == nil || e.Code != "request-id-used" || e.Exit != cli.ExitConflict || e.Hint == "" {
				t.Errorf("%s: %+v", what, e)
			}
		}
		submit := func(user, id, job string) {
			t.Helper()
			_, err := jobService{c.leader().server}.CommitJob(as("scheduler", "s1"), connect.NewRequest(&headroomv1.CommitJobRequest{
				Job: &headroomv1.Job{Id: job, Name: job, Class: "low"}, Change: change(id, user),
			}))
			if err != nil {
				t.Errorf("%s submits %s: %v", user, job, err)
			}
		}
		submit("submitter/ann", "night-cut", "aa")
		submit("submitter/ann", "finish-bb", "ab")
		submit("submitter/bob", "night-cut", "bb")
		first, err := budget("mia", "night-cut", 600, false)
		if err != nil || first.GetAlready() {
			t.Fatalf("a cut under an id that others have used: %v, %v", first, err)
		}
		check := func() {
			t.Helper()
			if again, err := budget("mia", "night-cut", 600, false); err != nil || !again.GetAlready() || again.GetMeta().GetRevision() != first.GetMeta().GetRevision() {
				t.Errorf("the cut again: %v, %v", again, err)
			}
			_, err = budget("mia", "night-cut", 550, false)
			refused("another cut", err)
			_, err = budget("mia", "night-cut", 550, true)
			refused("another cut tried out", err)
			if now := c.newest().Domains["site/lab"].Budget; now != 600*units.Watt {
				t.Errorf("the budget is %v", now)
			}
			for name, r := range map[string]*headroomv1.ChangeRequest{
				"token revoke": {What: &headroomv1.ChangeRequest_RevokeToken{RevokeToken: "t1"}},
				"tls revoke":   {What: &headroomv1.ChangeRequest_Deny{Deny: &headroomv1.Denial{Identity: "node/n01"}}},
				"token create": {What: &headroomv1.ChangeRequest_CreateToken{CreateToken: &headroomv1.Token{Id: "t2"}}},
			} {
				r.Change = change("first", "")
				_, err = clusterService{c.leader().server}.Change(as("admin", "root"), connect.NewRequest(r))
				refused(name, err)
			}
			_, err = memberService{c.leader().server}.RemoveMember(as("admin", "root"), connect.NewRequest(&headroomv1.RemoveMemberRequest{Id: "c3", Change: change("first", "")}))
			refused("member remove", err)
			_, err = memberService{c.leader().server}.TransferLead(as("admin", "root"), connect.NewRequest(&headroomv1.TransferLeadRequest{Change: change("first", "")}))
			refused("member transfer", err)
			_, err = brakeService{c.leader().server}.LiftBrake(as("admin", "root"), connect.NewRequest(&headroomv1.LiftBrakeRequest{Generation: 1, Change: change("first", "")}))
			refused("brake lift", err)
		}
		if _, err := (clusterService{c.leader().server}).Change(as("admin", "root"), connect.NewRequest(&headroomv1.ChangeRequest{
			Change: change("first", ""), What: &headroomv1.ChangeRequest_SetPolicy{SetPolicy: "equal"},
		})); err != nil {
			t.Fatal(err)
		}
		check()

		for _, watts := range []int64{590, 580} { // a dry run uses no id
			if r, err := budget("zoe", "tried", watts, true); err != nil || r.GetAlready() {
				t.Errorf("dry run: %v, %v", r, err)
			}
		}

		id := c.leader().cfg.ID
		c.kill(id)
		c.leader(id)
		check()

		if _, err := (jobService{c.leader().server}).FinishJob(as("scheduler", "s1"), connect.NewRequest(&headroomv1.FinishJobRequest{
			Id: "bb", State: headroomv1.JobState_JOB_STATE_DONE, Change: change("finish-bb", ""),
		})); err != nil {
			t.Error(err)
		}
		if now := c.newest().Jobs["bb"].State; now != ledger.JobDone {
			t.Errorf("bob's job is %s in the log: ann took the scheduler's id", now)
		}
	})
}

// Who asks, why, and what only confirms or tries a request out is no part of its content.
func TestContentOfARequest(t *testing.T) {
	t.Parallel()
	set := func(f func(*headroomv1.SetBudgetRequest)) string {
		r := &headroomv1.SetBudgetRequest{Domain: "site/lab", BudgetUw: 5, Change: &headroomv1.Change{RequestId: "x"}}
		f(r)
		return content(r)
	}
	schedule := func(confirm int64) string {
		return content(&headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSchedule{SetSchedule: &headroomv1.Schedule{Name: "x", ConfirmUw: confirm}}})
	}
	same := set(func(*headroomv1.SetBudgetRequest) {})
	if got := set(func(r *headroomv1.SetBudgetRequest) { r.DryRun, r.ConfirmUw, r.Change = true, 5, nil }); got != same || schedule(0) != schedule(7) {
		t.Error("the frame of a request counts as its content")
	}
	for name, other := range map[string]string{
		"domain": set(func(r *headroomv1.SetBudgetRequest) { r.Domain = "rack/r1" }), "force": set(func(r *headroomv1.SetBudgetRequest) { r.Force = true }),
		"until": set(func(r *headroomv1.SetBudgetRequest) { r.UntilUs = 9 }), "another call": schedule(0), "empty": content(&headroomv1.ChangeRequest{}),
		"a like message": content(&headroomv1.RollbackRequest{Domain: "site/lab"}),
	} {
		if other == same {
			t.Errorf("%s: the same content", name)
		}
	}
	job := func(user string, j *headroomv1.Job) string {
		return content(&headroomv1.CommitJobRequest{Job: j, Change: &headroomv1.Change{OnBehalfOf: user}})
	}
	a, b := &headroomv1.Job{Id: "j", Spec: []byte("x"), SubmittedUs: 1}, &headroomv1.Job{Id: "j", Spec: []byte("x"), SubmittedUs: 2}
	if job("ann", a) != job("ann", b) || job("ann", a) == job("ann", &headroomv1.Job{Id: "j", Spec: []byte("y")}) {
		t.Error("a job is the same when it is submitted again, and another with another file")
	}
}

// A change that names no domain does not become one of the whole site, and a raise is repeated.
func TestChangeNamesItsDomain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		c.leader()
		set := func(domain string, watts, confirm int64) *cli.Error {
			r := connect.NewRequest(&headroomv1.SetBudgetRequest{Domain: domain, BudgetUw: watts * 1e6, ConfirmUw: confirm * 1e6})
			_, err := access.Bounds{}.WrapUnary(func(ctx context.Context, _ connect.AnyRequest) (connect.AnyResponse, error) {
				return clusterService{c.leader().server}.SetBudget(ctx, r)
			})(t.Context(), r)
			return rpc.AsCLI(err, "test", "addr")
		}
		if e := set("site/lab", 500, 0); e != nil {
			t.Errorf("a cut: %v", e)
		}
		for name, e := range map[string]*cli.Error{
			"no domain": set("", 400, 0), "a raise": set("site/lab", 600, 0), "a raise to another value": set("site/lab", 600, 60), "above every earlier one": set("site/lab", 900, 0),
		} {
			if e == nil || e.Exit != cli.ExitUsage || e.Hint == "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if now := c.newest().Domains["site/lab"].Budget; now != 500*units.Watt {
			t.Errorf("the budget is %v", now)
		}
		if e := set("site/lab", 600, 600); e != nil {
			t.Errorf("a confirmed raise: %v", e)
		}
		for name, x := range map[string]*headroomv1.ChangeRequest{
			"schedule":      {What: &headroomv1.ChangeRequest_SetSchedule{SetSchedule: &headroomv1.Schedule{Name: "x"}}},
			"sprint budget": {What: &headroomv1.ChangeRequest_SetSprintBudget{SetSprintBudget: &headroomv1.SetSprintBudget{}}},
			"sprint":        {What: &headroomv1.ChangeRequest_GrantSprint{GrantSprint: &headroomv1.GrantSprint{}}},
		} {
			_, err := access.Bounds{}.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				t.Errorf("%s without a domain was let through", name)
				return nil, nil
			})(t.Context(), connect.NewRequest(x))
			if e := rpc.AsCLI(err, "test", "addr"); e == nil || e.Exit != cli.ExitUsage {
				t.Errorf("%s: %v", name, e)
			}
		}
	})
}
