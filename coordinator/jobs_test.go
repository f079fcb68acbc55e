// Claims: all jobs can be read however large their files are, page by page, each
// once and in order; a page fits into a message. A job that ended below its quality
// floor is an alarm for a day; the policies that are told are those that are taken.
package coordinator

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/jobs/containers"
	"headroom/ledger"
	"headroom/units"
)

func TestPagesOfJobs(t *testing.T) {
	t.Parallel()
	s := &ledger.State{Jobs: map[string]ledger.Job{}}
	for i := range 300 {
		id := fmt.Sprintf("job-%03d", i)
		s.Jobs[id] = ledger.Job{ID: id, Submitted: int64(i / 7), State: ledger.JobAccepted, Spec: bytes.Repeat([]byte("x"), 64<<10)}
	}
	var read []string
	req, pages := &headroomv1.ListJobsRequest{}, 0
	for more := true; more; pages++ {
		out := &headroomv1.ListJobsResponse{}
		if err := jobPage(s, nil, req, out); err != nil || proto.Size(out) > rpc.MaxMessage || pages > 300 {
			t.Fatalf("page %d of %d bytes: %v", pages, proto.Size(out), err)
		}
		for _, j := range out.GetJobs() {
			read = append(read, j.GetId())
		}
		req.After, more = read[len(read)-1], out.GetMore()
	}
	if pages < 2 || len(read) != 300 || !slices.IsSorted(read) {
		t.Errorf("%d jobs on %d pages, want 300 on several, in order", len(read), pages)
	}
	all := &headroomv1.ListJobsResponse{}
	if err := jobPage(s, nil, &headroomv1.ListJobsRequest{WithoutSpecs: true}, all); err != nil || len(all.GetJobs()) != 300 || all.GetMore() || len(all.GetJobs()[0].GetSpec()) > 0 {
		t.Errorf("without their files: %d jobs, more %t, %v", len(all.GetJobs()), all.GetMore(), err)
	}
	if err := jobPage(s, nil, &headroomv1.ListJobsRequest{After: "gone"}, all); err == nil {
		t.Error("a page after a job that is not there")
	}
}

func TestEndBelowTheFloorIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"below": {Done: 29, Ended: now.Add(-23 * time.Hour).UnixMicro()}, "at": {Done: 30, Ended: now.UnixMicro()}, "long ago": {Done: 1, Ended: now.Add(-25 * time.Hour).UnixMicro()},
	} {
		j.ID, j.State, j.Floor, j.Tasks = id, ledger.JobDone, 0.75, 40
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].key() != "quality-floor/below" || got[0].severity != alarmFail || !strings.Contains(got[0].text, "29 of 40 tasks, its quality floor is 30") {
		t.Errorf("alarms %+v", got)
	}
}

func TestMissedDeadlineIsAnAlarm(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := ledger.New()
	for id, j := range map[string]ledger.Job{
		"late": {State: ledger.JobAccepted, Deadline: time.Minute}, "in time": {State: ledger.JobAccepted, Deadline: time.Hour}, "none": {State: ledger.JobAccepted},
		"over": {State: ledger.JobDone, Deadline: time.Minute},
	} {
		j.ID, j.Submitted = id, now.Add(-10*time.Minute).UnixMicro()
		s.Jobs[id] = j
	}
	got := jobAlarms(s, now)
	if len(got) != 1 || got[0].key() != "deadline-missed/late" || got[0].severity != alarmWarn || !strings.Contains(got[0].text, "its deadline was 1m00s after it was submitted, 9m00s ago") {
		t.Errorf("alarms %+v", got)
	}
}

func TestContainerPolicies(t *testing.T) {
	var names []string
	for _, p := range containers.Policies() {
		names = append(names, string(p))
	}
	if !slices.Equal(names, ledger.ContainerPolicies()) || string(containers.Policies()[0]) != ledger.DefaultContainerPolicy {
		t.Errorf("the log takes %q, there are %q", ledger.ContainerPolicies(), names)
	}
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 1, 700*units.Watt)
		service := clusterService{c.leader().server}
		change := &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: "paper"}}
		if _, err := service.Change(t.Context(), connect.NewRequest(change)); err != nil {
			t.Fatal(err)
		}
		r, err := service.ListPolicies(t.Context(), connect.NewRequest(&headroomv1.ListPoliciesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var chosen []string
		for _, p := range r.Msg.GetPolicies() {
			if p.GetInForce() {
				chosen = append(chosen, p.GetName()+" "+p.GetDivides())
			}
			if p.GetWhat() == "" {
				t.Errorf("%s says nothing", p.GetName())
			}
		}
		if !slices.Equal(chosen, []string{"weighted watts", "paper containers"}) {
			t.Errorf("in force are %q", chosen)
		}
	})
}
