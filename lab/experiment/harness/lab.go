package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/lab/experiment"
	"headroom/lab/hadoop"
	"headroom/lab/spark"
	"headroom/units"
)

const (
	// weight keeps for the nodes the CPUs that they own, whatever else the host does.
	weight = 50
	// awaitEvery is the pause between two looks at what a run waits for.
	awaitEvery = 200 * time.Millisecond
	// patience bounds the start of a cluster.
	patience = 5 * time.Minute
	// settled is how near a node's cap must come to what it should hold.
	settled = 0.02
)

// Lab is a run's site and the connections to its servers.
type Lab struct {
	*experiment.Run

	Site *cluster.Site
	via  connect.HTTPClient
}

// NewLab starts the coordinators and the nodes of a run, and returns when each node holds a lease. Close
// ends them.
func NewLab(ctx context.Context, run *experiment.Run, config cluster.Config) (l *Lab, err error) {
	l = &Lab{Run: run, via: rpc.NewClient()}
	config.Dir, config.Bin, config.Weight = run.Path("site"), run.Bin, weight
	if l.Site, err = cluster.NewSite(config); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = l.Site.Start()
	if err == nil {
		err = l.Await(ctx, "the nodes hold no lease", func(ctx context.Context) bool { return l.Held(ctx, 1) })
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends the site.
func (l *Lab) Close() error { return l.Site.Close() }

// Await looks until done, the time is over, or a program has ended.
func (l *Lab) Await(ctx context.Context, not string, done func(context.Context) bool) error {
	for !done(ctx) {
		if err := l.Site.Running(); err != nil {
			return err
		}
		if !pause.For(ctx, awaitEvery) {
			return fmt.Errorf("experiment: %s: %w", not, ctx.Err())
		}
	}
	return nil
}

// ask calls the leading coordinator.
func ask[C, Q, A any](
	ctx context.Context, l *Lab, client func(connect.HTTPClient, string, ...connect.ClientOption) C,
	call func(C, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q,
) (answer *A, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = rpc.ToLeader(ctx, l.Site.Addresses(), 5*time.Second, func(addr string) error {
		got, err := call(client(l.via, rpc.BaseURL(addr), rpc.ClientOptions()...), ctx, connect.NewRequest(q))
		if err == nil {
			answer = got.Msg
		}
		return err
	})
	return answer, err
}

// Jobs are the jobs of the coordinators' log.
func (l *Lab) Jobs(ctx context.Context) ([]*headroomv1.Job, error) {
	all, err := ask(ctx, l, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ListJobs, &headroomv1.ListJobsRequest{WithoutSpecs: true})
	return all.GetJobs(), err
}

// sprints are the sprints of the coordinators' log, those that are over included.
func (l *Lab) sprints(ctx context.Context) ([]*headroomv1.SprintRecord, error) {
	all, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListSprints, &headroomv1.ListSprintsRequest{All: true})
	return all.GetSprints(), err
}

// signed is the entry of a run's change in the coordinators' log.
func signed() *headroomv1.Change {
	return &headroomv1.Change{Actor: "campaign", Reason: "the experiment", RequestId: rand.Text()}
}

// Change makes a change at the leading coordinator.
func (l *Lab) Change(ctx context.Context, req *headroomv1.ChangeRequest) error {
	req.Change = signed()
	_, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.Change, req)
	return err
}

// Containers sets the policy that divides containers.
func (l *Lab) Containers(ctx context.Context, policy string) error {
	return l.Change(ctx, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: policy}})
}

// Budget sets the site's budget, a part of full power.
func (l *Lab) Budget(ctx context.Context, part float64) error {
	to := int64(units.FromWatts(math.Round(l.Site.Full().Watts() * part)))
	_, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.SetBudget,
		&headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: to, ConfirmUw: to, Change: signed()})
	return err
}

// Cap bounds the power of each node, as parts of its rated power; the last part holds for all that follow.
func (l *Lab) Cap(ctx context.Context, parts ...float64) error {
	for i, name := range l.Site.Nodes() {
		most := int64(units.FromWatts(math.Round(cluster.Rated().Watts() * parts[min(i, len(parts)-1)])))
		if err := l.Change(ctx, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{
			SetNode: &headroomv1.SetNode{Node: name, Settings: &headroomv1.NodeSettings{MaxUw: &most}},
		}}); err != nil {
			return fmt.Errorf("experiment: cap %s: %w", name, err)
		}
	}
	return nil
}

// caps are the caps that nodes hold now, as parts of what each is rated, in the order of their names; none while they are unknown.
func (l *Lab) caps(ctx context.Context) (parts []float64) {
	all, _ := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListNodes, &headroomv1.ListNodesRequest{}) // the next look is near
	nodes := all.GetNodes()
	for _, name := range l.Site.Nodes() {
		i := slices.IndexFunc(nodes, func(n *headroomv1.Node) bool { return n.GetName() == name })
		if i < 0 || nodes[i].EffectiveUw == nil || nodes[i].GetRatedUw() == 0 {
			return nil
		}
		parts = append(parts, min(1, float64(nodes[i].GetEffectiveUw())/float64(nodes[i].GetRatedUw())))
	}
	return parts
}

// Held reports whether each node holds its part; the last one holds for all that follow.
func (l *Lab) Held(ctx context.Context, parts ...float64) bool {
	caps := l.caps(ctx)
	for i, x := range caps {
		if math.Abs(x/parts[min(i, len(parts)-1)]-1) >= settled {
			return false
		}
	}
	return len(caps) > 0
}

func (l *Lab) scheduler() headroomv1connect.SchedulerServiceClient {
	return headroomv1connect.NewSchedulerServiceClient(l.via, rpc.BaseURL(l.Site.Scheduler()), rpc.ClientOptions()...)
}

// list is the scheduler's list of jobs and workers.
func (l *Lab) list(ctx context.Context) (*headroomv1.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := l.scheduler().List(ctx, connect.NewRequest(&headroomv1.ListRequest{}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// submit submits a job file and returns the job's id. A job that waits is queued where too few slots are
// free for its deadline.
func (l *Lab) submit(ctx context.Context, spec string, waits bool) (string, error) {
	answer, err := l.scheduler().Submit(ctx, connect.NewRequest(&headroomv1.SubmitRequest{Spec: []byte(spec), File: l.Path("job.yaml"), Change: signed(), Queue: waits}))
	if err != nil {
		return "", fmt.Errorf("experiment: submit: %w", err)
	}
	return answer.Msg.GetJob().GetId(), nil
}

// on lets a process run on a node of the site.
func (l *Lab) on(node string) func(argv []string) []string {
	return cluster.OnNode(l.Program("powerlab"), l.Site.NodeDir(), node)
}

// HadoopNodes are the site's nodes, each with a NodeManager that offers so many containers of a unit of memory, MiB.
func (l *Lab) HadoopNodes(slots, unit int) (nodes []hadoop.Node) {
	for _, name := range l.Site.Nodes() {
		nodes = append(nodes, hadoop.Node{Name: name, VCores: slots, MemoryMB: slots * unit, Wrap: l.on(name)})
	}
	return nodes
}

// SparkNodes are the site's nodes, each with a Worker that offers so many cores and so much memory, MiB; 0 for the default.
func (l *Lab) SparkNodes(cores, memory int) (nodes []spark.Node) {
	for _, name := range l.Site.Nodes() {
		nodes = append(nodes, spark.Node{Name: name, Cores: cores, MemoryMB: memory, Wrap: l.on(name)})
	}
	return nodes
}
