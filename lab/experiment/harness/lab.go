package harness

import (
	"cmp"
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
	// awaitEvery is the pause between two looks at what a run waits for.
	awaitEvery = 200 * time.Millisecond
	// electing bounds a wait for a leader.
	electing = 5 * time.Second
	// patience bounds the start of a cluster.
	patience = 5 * time.Minute
	// settled is how near a node's cap must come to what it should hold.
	settled = 0.02
)

// Lab is a run's site, the connections to its servers, and the engine on its nodes.
type Lab struct {
	*experiment.Run

	Site *cluster.Site
	// Engine is nil where Start did not start the lab.
	Engine *Running
	via    connect.HTTPClient
}

// NewLab starts the coordinators and the nodes of a run, and returns when each node holds a lease. The site's
// folder is that of config, or one below the run's. Close ends them.
func NewLab(ctx context.Context, run *experiment.Run, config cluster.Config) (l *Lab, err error) {
	l = &Lab{Run: run, via: rpc.NewClient()}
	config.Dir, config.Bin = cmp.Or(config.Dir, run.Path("site")), run.Bin
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

// Close ends the engine and the site.
func (l *Lab) Close() (err error) {
	if l.Engine != nil {
		err = l.Engine.Close()
	}
	return errors.Join(err, l.Site.Close())
}

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

// ask calls the leading coordinator, and waits for there to be one.
func ask[C, Q, A any](
	ctx context.Context, l *Lab, client func(connect.HTTPClient, string, ...connect.ClientOption) C,
	call func(C, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q,
) (answer *A, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*electing)
	defer cancel()
	_, err = rpc.ToLeader(ctx, l.Site.Addresses(), electing, func(addr string) error {
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

// Moves are the decisions about a job that the leader has, oldest first.
func (l *Lab) Moves(ctx context.Context, id string) ([]*headroomv1.JobMove, error) {
	all, err := ask(ctx, l, headroomv1connect.NewJobServiceClient, headroomv1connect.JobServiceClient.ExplainJob, &headroomv1.ExplainJobRequest{Id: id})
	return all.GetMoves(), err
}

// sprints are the sprints of the coordinators' log, those that are over included.
func (l *Lab) sprints(ctx context.Context) ([]*headroomv1.SprintRecord, error) {
	all, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListSprints, &headroomv1.ListSprintsRequest{All: true})
	return all.GetSprints(), err
}

// Nodes is the leader's table of nodes.
func (l *Lab) Nodes(ctx context.Context) (*headroomv1.ListNodesResponse, error) {
	return ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListNodes, &headroomv1.ListNodesRequest{})
}

// Domain is the site's domain as the leader has it now.
func (l *Lab) Domain(ctx context.Context) (*headroomv1.Domain, *headroomv1.Meta, error) {
	found, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.ListDomains,
		&headroomv1.ListDomainsRequest{Domain: cluster.Domain})
	if err != nil {
		return nil, nil, err
	}
	return found.GetDomains()[0], found.GetMeta(), nil // an unknown domain is an error of the server
}

// signed is the entry of a run's change in the coordinators' log.
func signed() *headroomv1.Change {
	return &headroomv1.Change{Actor: "powerlab", Reason: "the run's own", RequestId: rand.Text()}
}

// Change makes a change at the leading coordinator.
func (l *Lab) Change(ctx context.Context, req *headroomv1.ChangeRequest) error {
	req.Change = signed()
	_, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.Change, req)
	return err
}

// SetSprint lets the site's nodes draw so much above their caps, and refills it.
func (l *Lab) SetSprint(ctx context.Context, capacity units.Energy, refill units.Power) error {
	return l.Change(ctx, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{
		SetSprintBudget: &headroomv1.SetSprintBudget{Domain: cluster.Domain, CapacityUj: int64(capacity), RefillUw: int64(refill)},
	}})
}

// Containers sets the policy that divides containers.
func (l *Lab) Containers(ctx context.Context, policy string) error {
	return l.Change(ctx, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: policy}})
}

// Part is a part of the site's full power, in whole watts.
func (l *Lab) Part(of float64) units.Power {
	return units.FromWatts(math.Round(l.Site.Full().Watts() * of))
}

// SetBudget sets the site's budget, a part of full power, and returns the revision of that.
func (l *Lab) SetBudget(ctx context.Context, part float64) (revision uint64, err error) {
	to := int64(l.Part(part))
	set, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.SetBudget,
		&headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: to, ConfirmUw: to, Change: signed()})
	return set.GetMeta().GetRevision(), err
}

// Budget sets the site's budget, a part of full power.
func (l *Lab) Budget(ctx context.Context, part float64) error {
	_, err := l.SetBudget(ctx, part)
	return err
}

// Confirmed returns when each node that a revision lowered has read back its new cap, or the time is over.
func (l *Lab) Confirmed(ctx context.Context, revision uint64, most time.Duration) ([]*headroomv1.Confirmation, error) {
	got, err := ask(ctx, l, headroomv1connect.NewClusterServiceClient, headroomv1connect.ClusterServiceClient.AwaitBudget,
		&headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: most.Milliseconds()})
	return got.GetConfirmations(), err
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
	all, _ := l.Nodes(ctx) // the next look is near
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

// List is the scheduler's list of jobs and workers.
func (l *Lab) List(ctx context.Context) (*headroomv1.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, electing)
	defer cancel()
	answer, err := l.scheduler().List(ctx, connect.NewRequest(&headroomv1.ListRequest{}))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// submit submits a job file and returns the job's id. A job that waits is queued where too few slots are
// free for its deadline. It is submitted again while no coordinator leads; its request id makes it one job.
func (l *Lab) submit(ctx context.Context, spec string, waits bool) (string, error) {
	req := &headroomv1.SubmitRequest{Spec: []byte(spec), File: l.Path("job.yaml"), Change: signed(), Queue: waits}
	for late := time.Now().Add(2 * electing); ; {
		answer, err := l.scheduler().Submit(ctx, connect.NewRequest(req))
		if err == nil {
			return answer.Msg.GetJob().GetId(), nil
		}
		if connect.CodeOf(err) != connect.CodeUnavailable || time.Now().After(late) || !pause.For(ctx, awaitEvery) {
			return "", fmt.Errorf("experiment: submit: %w", err)
		}
	}
}

// cancel ends a job of the scheduler.
func (l *Lab) cancel(ctx context.Context, id string) error {
	_, err := l.scheduler().Cancel(ctx, connect.NewRequest(&headroomv1.CancelRequest{Id: id, Change: signed()}))
	return err
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
