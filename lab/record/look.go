package record

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/units"
)

// look is what was seen at one moment. Pointers are nil while unknown.
type look struct {
	at      time.Duration // since the first look
	domains []domainLook
	nodes   []nodeLook
	jobs    []jobLook
}

type domainLook struct {
	name             string
	root             bool
	budget, reserved units.Power
	measured         *units.Power
}

type nodeLook struct {
	name       string
	cap        units.Power
	held       *units.Power // as read back
	power      *units.Power
	containers int
}

type jobLook struct {
	id, state        string
	tasks, done      int
	dropped          int
	containers       *int
	given            *int
	finish, uncapped *float64 // seconds after its start
	share            *float64
	elapsed          *float64
}

// progress is the part of its tasks that is done or will never run; nil while it has none.
func (j jobLook) progress() *float64 {
	if j.tasks == 0 {
		return nil
	}
	return new(float64(j.done+j.dropped) / float64(j.tasks))
}

// window looks at a cluster.
type window struct {
	peers rpc.Peers
	addrs []string
	wait  time.Duration // of one look
}

// look requests domains, nodes and jobs from the leader.
func (w *window) look(ctx context.Context) (look, error) {
	ctx, cancel := context.WithTimeout(ctx, w.wait)
	defer cancel()
	var out look
	_, err := rpc.ToLeader(ctx, w.addrs, w.wait/2, func(addr string) error {
		out = look{}
		return w.ask(ctx, addr, &out)
	})
	return out, err
}

func (w *window) ask(ctx context.Context, addr string, out *look) error {
	cluster := headroomv1connect.NewClusterServiceClient(w.peers.HTTP(), w.peers.URL(addr), w.peers.Options()...)
	domains, err1 := cluster.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
	nodes, err2 := cluster.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{}))
	jobs, err3 := w.jobs(ctx, addr)
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	for _, d := range domains.Msg.GetDomains() {
		out.domains = append(out.domains, domainLook{
			d.GetName(), d.GetParent() == "", units.Power(d.GetBudgetUw()), units.Power(d.GetReservedUw()), power(d.MeasuredUw),
		})
	}
	on := map[string]int{}
	for _, j := range jobs {
		if j.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		out.jobs = append(out.jobs, jobOf(j))
		for node, n := range j.GetProgress().GetRunningOn() {
			on[node] += int(n)
		}
	}
	for _, n := range nodes.Msg.GetNodes() {
		out.nodes = append(out.nodes, nodeLook{n.GetName(), units.Power(n.GetTargetUw()), power(n.EffectiveUw), power(n.PowerUw), on[n.GetName()]})
	}
	return nil
}

// jobs are all jobs, page by page.
func (w *window) jobs(ctx context.Context, addr string) ([]*headroomv1.Job, error) {
	client := headroomv1connect.NewJobServiceClient(w.peers.HTTP(), w.peers.URL(addr), w.peers.Options()...)
	var all []*headroomv1.Job
	req := &headroomv1.ListJobsRequest{WithoutSpecs: true}
	for {
		r, err := client.ListJobs(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		page := r.Msg.GetJobs()
		all = append(all, page...)
		if !r.Msg.GetMore() || len(page) == 0 {
			return all, nil
		}
		req.After = page[len(page)-1].GetId()
	}
}

func jobOf(j *headroomv1.Job) jobLook {
	p, o := j.GetProgress(), j.GetOutlook()
	out := jobLook{id: j.GetId(), state: "running", tasks: int(p.GetTasks()), done: int(p.GetDone()), dropped: int(p.GetDropped()), uncapped: j.UncappedS}
	if p != nil {
		out.containers, out.elapsed = new(int(cmp.Or(p.GetContainers(), p.GetRunning()))), p.RuntimeS
	}
	if o != nil {
		out.finish, out.share, out.uncapped = o.FinishS, o.CapShare, cmp.Or(j.UncappedS, o.UncappedS)
		if o.Containers != nil {
			out.given = new(int(o.GetContainers()))
		}
	}
	return out
}

func power(uw *int64) *units.Power {
	if uw == nil {
		return nil
	}
	return new(units.Power(*uw))
}
