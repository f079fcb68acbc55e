// Claims (two schedulers of one cluster): of two schedulers one holds the lease; the other replaces
// it when it has been silent for SchedulerLapse, under whichever leader; a leader that is cut off
// renews for nobody; the late words of the one before are refused.
package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// asking is a scheduler that asks for the lease.
func asking(name string) *headroomv1.HoldSchedulerRequest {
	return &headroomv1.HoldSchedulerRequest{Id: name, Process: name + "-1", Place: name, Address: name + ":7410", Key: []byte(strings.Repeat(name[:1], 32))}
}

func TestSchedulersTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700)
		hold := func(at *running, r *headroomv1.HoldSchedulerRequest) (*headroomv1.HoldSchedulerResponse, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			resp, err := jobService{server: at.server}.HoldScheduler(ctx, connect.NewRequest(r))
			if err != nil {
				return nil, err
			}
			return resp.Msg, nil
		}
		a, b := asking("anna"), asking("berta")
		first, err := hold(c.leader(), a)
		if err != nil || !first.GetHeld() || first.GetLeaseMs() != ledger.SchedulerLease.Milliseconds() || string(first.GetKey()) != string(a.GetKey()) {
			t.Fatalf("%v, %v", first, err)
		}
		revision := c.newest().Revision
		for range 20 {
			time.Sleep(time.Second)
			if x, err := hold(c.leader(), a); err != nil || !x.GetHeld() || x.GetEpoch() != first.GetEpoch() {
				t.Fatalf("renewal: %v, %v", x, err)
			}
		}
		for _, e := range c.newest().Events {
			if e.Revision > revision && strings.Contains(e.What, "scheduler") {
				t.Errorf("a renewal wrote the log: %+v", e)
			}
		}
		if x, err := hold(c.leader(), b); err != nil || x.GetHeld() || x.GetAddress() != a.GetAddress() || x.GetKey() != nil {
			t.Errorf("the second scheduler: %v, %v", x, err)
		}

		// The leader is cut off: it can prove nothing, and the next one waits for the lease that it may have renewed.
		old := c.leader()
		c.isolate(old.requests.id)
		if x, err := hold(old, a); err == nil && x.GetHeld() {
			t.Error("a leader that is cut off renews")
		}
		began := time.Now()
		next := c.leader(old.requests.id)
		led := time.Now()
		for {
			x, err := hold(next, b)
			if err == nil && x.GetHeld() {
				if x.GetEpoch() != first.GetEpoch()+1 || string(x.GetKey()) != string(a.GetKey()) {
					t.Errorf("%v", x)
				}
				break
			}
			if time.Since(led) > 20*time.Second {
				t.Fatalf("not taken over: %v, %v", x, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < ledger.SchedulerLease || took > 10*time.Second {
			t.Errorf("taken over after %v", took)
		}
		c.heal(old.requests.id)

		finish := func(epoch uint64) error {
			r := connect.NewRequest(&headroomv1.FinishJobRequest{Id: "j1", State: headroomv1.JobState_JOB_STATE_DONE})
			rpc.SetSchedulerEpoch(r.Header(), epoch)
			_, err := jobService{server: c.leader().server}.FinishJob(t.Context(), r)
			return err
		}
		commit := connect.NewRequest(&headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: "j1", Name: "j"}})
		rpc.SetSchedulerEpoch(commit.Header(), first.GetEpoch()+1)
		if _, err := (jobService{server: c.leader().server}).CommitJob(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
		for _, epoch := range []uint64{0, first.GetEpoch()} {
			if err := finish(epoch); err == nil || !strings.Contains(err.Error(), "another scheduler is active") {
				t.Errorf("the end of a job, epoch %d: %v", epoch, err)
			}
		}
		if x, err := hold(c.leader(), a); err != nil || x.GetHeld() || x.GetAddress() != b.GetAddress() {
			t.Errorf("the first one asks again: %v, %v", x, err)
		}
		if _, err := hold(c.leader(), &headroomv1.HoldSchedulerRequest{Release: first.GetEpoch() + 1}); err != nil {
			t.Fatal(err)
		}
		if x, err := hold(c.leader(), a); err != nil || !x.GetHeld() {
			t.Errorf("after the release: %v, %v", x, err)
		}
		if err := finish(first.GetEpoch() + 2); err != nil {
			t.Error(err)
		}
	})
}
