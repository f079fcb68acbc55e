// Claims: all jobs can be read however large their files are, page by page, each
// once and in order; a page fits into a message. A job that ended below its quality
// floor is an alarm for a day; the policies that are told are those that are taken.
package coordinator

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

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

func TestContainerPolicies(t *testing.T) {
	names := []string{ledger.JointPolicy}
	for _, p := range containers.Policies() {
		names = append(names, string(p))
	}
	if !slices.Equal(names, ledger.ContainerPolicies()) || ledger.DefaultContainerPolicy != ledger.JointPolicy {
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
