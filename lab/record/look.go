package record

import (
	"cmp"
	"context"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
)

// look is what the leader had at one moment: its domains, nodes and running jobs; none of them where it did not answer.
type look struct {
	at      time.Duration // since the first look
	domains []*headroomv1.Domain
	nodes   []*headroomv1.Node
	jobs    []*headroomv1.Job
}

// window looks at a cluster.
type window struct {
	peers rpc.Peers
	addrs []string
	wait  time.Duration // of one look
}

// look requests domains, nodes and jobs from the leader.
func (w *window) look(ctx context.Context) (out look, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.wait)
	defer cancel()
	_, err = rpc.ToLeader(ctx, w.addrs, w.wait/2, func(addr string) error {
		cluster := headroomv1connect.NewClusterServiceClient(w.peers.HTTP(), w.peers.URL(addr), w.peers.Options()...)
		domains, err1 := cluster.ListDomains(ctx, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
		nodes, err2 := cluster.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{}))
		jobs, err3 := w.jobs(ctx, addr)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return err
		}
		out = look{domains: domains.Msg.GetDomains(), nodes: nodes.Msg.GetNodes(), jobs: jobs}
		return nil
	})
	return out, err
}

// jobs are the running jobs, page by page.
func (w *window) jobs(ctx context.Context, addr string) (running []*headroomv1.Job, err error) {
	client := headroomv1connect.NewJobServiceClient(w.peers.HTTP(), w.peers.URL(addr), w.peers.Options()...)
	for req := (&headroomv1.ListJobsRequest{WithoutSpecs: true}); ; {
		r, err := client.ListJobs(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		page := r.Msg.GetJobs()
		for _, j := range page {
			req.After = j.GetId()
			if j.GetState() == headroomv1.JobState_JOB_STATE_RUNNING {
				running = append(running, j)
			}
		}
		if !r.Msg.GetMore() || len(page) == 0 {
			return running, nil
		}
	}
}
