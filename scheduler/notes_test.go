package scheduler

// What people do at the scheduler, and what they try and may not do, is told to the coordinators in their names.

import (
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/access"
)

func TestActionsAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t)
		f.guard = newGuard(f.cfg, f.logger)
		f.guard.Refused = f.commits.noteRefused
		check := func(action headroomv1.SchedulerAction, actor, detail string) {
			t.Helper()
			select {
			case r := <-f.commits.noted:
				if c := r.GetChange(); r.GetAction() != action || c.GetActor() != actor || c.GetOnBehalfOf() != actor || r.GetDetail() != detail || c.GetRequestId() == "" {
					t.Errorf("recorded %v", r)
				}
			default:
				t.Errorf("%v of %s is not recorded", action, actor)
			}
		}
		mia := access.WithCaller(t.Context(), access.Caller{Role: secure.Operator, Name: "operator/mia"})
		for _, off := range []bool{false, true} {
			if _, err := f.service.Drain(mia, connect.NewRequest(&headroomv1.DrainRequest{Off: off, Change: &headroomv1.Change{Actor: "root", RequestId: "r"}})); err != nil {
				t.Fatal(err)
			}
			check(map[bool]headroomv1.SchedulerAction{false: headroomv1.SchedulerAction_SCHEDULER_ACTION_DRAIN, true: headroomv1.SchedulerAction_SCHEDULER_ACTION_RESUME}[off], "operator/mia", "")
		}
		if _, err := f.service.Drain(mia, connect.NewRequest(&headroomv1.DrainRequest{Look: true})); err != nil || len(f.commits.noted) != 0 {
			t.Errorf("a look is recorded (%v)", err)
		}
		j, err := f.submit("a", 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := f.service.cancel(access.WithCaller(t.Context(), access.Caller{Role: secure.Submitter, Name: "submitter/bob"}), &headroomv1.CancelRequest{Id: j.GetId(), Change: &headroomv1.Change{RequestId: "c"}})
			if err == nil {
				t.Error("bob cancels somebody's job")
			}
		}
		check(headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, "submitter/bob", "cancel job "+j.GetId())
		if _, err := f.service.logs(access.WithCaller(t.Context(), access.Caller{Role: secure.Submitter, Name: "submitter/bob"}), &headroomv1.LogsRequest{Id: j.GetId()}); err == nil {
			t.Error("bob reads the logs of somebody's job")
		}
		check(headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, "submitter/bob", "read the logs of job "+j.GetId())
		if _, err := f.service.logs(mia, &headroomv1.LogsRequest{Id: j.GetId()}); err != nil {
			t.Errorf("an operator reads no logs: %v", err)
		}
		shown := rpc.WithCaller(t.Context(), rpc.Caller{Shown: true, Identity: secure.Identity{Role: secure.Submitter, Name: "bob"}})
		if _, err := f.guard.Admit(shown, headroomv1connect.SchedulerServiceDrainProcedure); err == nil {
			t.Error("bob drains")
		}
		check(headroomv1.SchedulerAction_SCHEDULER_ACTION_REFUSED, "submitter/bob", "drain")
		if len(f.commits.noted) != 0 {
			t.Errorf("%d more are recorded", len(f.commits.noted))
		}
		for range 2 * notesMax { // without a leader nothing waits for the audit log
			f.commits.noteRefused(access.Caller{Name: "x"}, "drain")
		}
	})
}
