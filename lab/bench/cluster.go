package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/units"
)

// clusterOptions are the sizes of the cluster benchmark.
type clusterOptions struct {
	nodes       int
	duration    time.Duration
	cuts, kills int
	seed        uint64
	noEtcd      bool
}

func defaultCluster(quick bool) clusterOptions {
	if quick {
		return clusterOptions{nodes: 20, duration: time.Second, cuts: 1, kills: 1, seed: benchSeed}
	}
	return clusterOptions{nodes: 1000, duration: 30 * time.Second, cuts: 20, kills: 10, seed: benchSeed}
}

// clusterFields is the output of `powerlab bench cluster -o json`, from the readings of a run. Values that could
// not be measured are nil.
func clusterFields(nodes int, took map[string]reading) map[string]any {
	ratios := map[string]float64{} // of ours to etcd's
	fields := map[string]any{"nodes": nodes, "etcd_ratio": ratios}
	for _, x := range []struct {
		field, figure string
		factor        float64
		ratio         string
		single        bool
	}{
		{field: "exchange_s", figure: "exchange", factor: 1, ratio: "exchange_"},
		{field: "budget_cut_s", figure: "cut", factor: 1},
		{field: "failover_s", figure: "failover", factor: 1},
		{field: "plan_10000_s", figure: "plan-10000", factor: 1e-3},
		{field: "tick_10000_s", figure: "tick-10000", factor: 1e-3},
		{field: "cpu_per_node_s_per_s", figure: "server-cpu", factor: 1e-6, ratio: "cpu_per_node", single: true},
		{field: "log_bytes_per_s", figure: "server-log", factor: 1, ratio: "log_bytes", single: true},
		{field: "failover_over_budget_ws", figure: "failover-over", factor: 1, single: true},
	} {
		of := took[x.figure]
		value := func(name string, at float64) *float64 {
			ours, peer := valueOf(of.values, at), valueOf(of.peer, at)
			if ours == nil {
				return nil
			}
			if peer != nil && x.ratio != "" {
				ratios[x.ratio+name] = *ours / *peer
			}
			return finite(x.factor * *ours)
		}
		if x.single {
			fields[x.field] = value("", 1)
		} else {
			fields[x.field] = map[string]*float64{"p50": value("p50", 0.5), "p99": value("p99", 0.99)}
		}
	}
	return fields
}

func newClusterCommand() *cobra.Command {
	o := options{only: []string{"cluster", "plan-10000"}}
	c := defaultCluster(false)
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Benchmark three coordinators under many nodes, and etcd with the same leases",
		Long: `Starts three coordinators as processes. Nodes in this process run powerd's own exchange with them
over loopback: streams, heartbeats, leases and acknowledgements. Only their hardware is simplified
(a cap takes effect at once), and their state directory is in memory.

It measures exchanges, the coordinators' CPU and log, budget cuts, kills of the leader, and a whole
tick of 10,000 simulated nodes. Where etcd is installed, it is measured with the same number of
leases: each node renews its own and makes one transaction a second.

A missed goal is reported but is not a failure. The exit code is 8 if a benchmark could not be measured.`,
		Example: "  powerlab bench cluster\n  powerlab bench cluster --nodes 100 --duration 5s --cuts 3 --kills 2\n  powerlab bench cluster -o json > cluster.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			o.progress = cmd.ErrOrStderr()
			report, took, err := measureAll(cmd.Context(), o, c)
			if err != nil {
				return err
			}
			return report.print(cmd.OutOrStdout(), &out, clusterFields(c.nodes, took))
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.nodes, "nodes", c.nodes, "number of nodes")
	f.DurationVar(&c.duration, "duration", c.duration, "duration of each measurement of exchanges, CPU and log, and of etcd")
	f.IntVar(&c.cuts, "cuts", c.cuts, "number of budget cuts")
	f.IntVar(&c.kills, "kills", c.kills, "number of kills of the leader")
	f.Uint64Var(&c.seed, "seed", c.seed, "seed of the nodes' loads")
	f.BoolVar(&c.noEtcd, "no-etcd", false, "do not measure etcd")
	f.StringVar(&o.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	out.Flags(cmd)
	return cmd
}

func (o *clusterOptions) check() error {
	if o.duration < time.Second || o.duration > 10*time.Minute {
		return cli.Usage("--duration %v: must be from 1s to 10m", o.duration)
	}
	for _, x := range []struct {
		flag       string
		v, highest int
	}{{"nodes", o.nodes, 5000}, {"cuts", o.cuts, 100}, {"kills", o.kills, 100}} {
		if x.v < 1 || x.v > x.highest {
			return cli.Usage("--%s %d: must be from 1 to %d", x.flag, x.v, x.highest)
		}
	}
	return nil
}

// Domains of the benched clusters: the budget of site is what changes.
const (
	siteName = "site/bench"
	rackName = "rack/r1"
)

// group is a cluster of coordinators as real processes, and what else is started beside them.
type group struct {
	*cluster.Servers

	programs *cluster.Group
	bin      string
	running  map[string]*cluster.Program // coordinators, by id
	via      connect.HTTPClient
}

// newGroup configures coordinators with this budget in the scratch folder. None is started yet.
func newGroup(r *run, servers int, budget units.Power) (g *group, err error) {
	g = &group{bin: r.bin, running: map[string]*cluster.Program{}, via: rpc.NewClient()}
	if g.Servers, err = cluster.NewServers(r.dir, servers, 0); err == nil {
		err = g.Configure(siteName, budget, rackName)
	}
	if err == nil {
		g.programs, err = cluster.NewGroup(r.dir)
	}
	return g, err
}

// start starts a coordinator, again where it was killed.
func (g *group) start(id string) (err error) {
	g.running[id], err = g.programs.Start(id, nil, filepath.Join(g.bin, "coordinator"), "run", "--config", g.Config(cluster.Member{ID: id}))
	return err
}

// startAll starts every coordinator and waits until they follow a leader.
func (g *group) startAll(ctx context.Context) error {
	for _, m := range g.Members {
		if err := g.start(m.ID); err != nil {
			return err
		}
	}
	_, err := g.awaitHealthy(ctx)
	return err
}

// ask calls f with a client of the server that leads.
func (g *group) ask(ctx context.Context, f func(headroomv1connect.ClusterServiceClient) error) error {
	_, err := rpc.ToLeader(ctx, g.Addresses(), 10*time.Second, func(addr string) error { return f(g.client(addr)) })
	if err != nil {
		return fmt.Errorf("bench: ask the leader: %w", err)
	}
	return nil
}

func (g *group) client(addr string) headroomv1connect.ClusterServiceClient {
	return headroomv1connect.NewClusterServiceClient(g.via, rpc.BaseURL(addr), rpc.ClientOptions()...)
}

// awaitHealthy waits for a leader, which it returns, and for every server to be within three entries of the end of the log.
func (g *group) awaitHealthy(ctx context.Context) (leader string, err error) {
	err = await(ctx, 25*time.Second, "every coordinator caught up", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, addr := range g.Addresses() {
			res, err := g.client(addr).ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{}))
			if err != nil {
				continue
			}
			newest, all := uint64(0), res.Msg.GetMembers()
			leader = ""
			for _, m := range all {
				if newest = max(newest, m.GetCommit()); m.GetRole() == "leader" {
					leader = m.GetId()
				}
			}
			return leader != "" && !slices.ContainsFunc(all, func(m *headroomv1.Member) bool { return m.Commit == nil || m.GetCommit()+3 < newest })
		}
		return false
	})
	return leader, err
}

// setBudget changes the site's budget and returns the revision that it made.
func (g *group) setBudget(ctx context.Context, to units.Power) (revision uint64, err error) {
	req := &headroomv1.SetBudgetRequest{
		Domain: siteName, BudgetUw: int64(to), ConfirmUw: int64(to), Change: &headroomv1.Change{Actor: "bench", Reason: "bench", RequestId: rand.Text()},
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err = g.ask(ctx, func(c headroomv1connect.ClusterServiceClient) error {
		res, err := c.SetBudget(ctx, connect.NewRequest(req))
		if err == nil {
			revision = res.Msg.GetMeta().GetRevision()
		}
		return err
	})
	return revision, err
}

// cut lowers the site's budget and waits until each node that this lowered has read back its cap.
func (g *group) cut(ctx context.Context, to units.Power) error {
	const wait = 15 * time.Second
	revision, err := g.setBudget(ctx, to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait+5*time.Second)
	defer cancel()
	var all []*headroomv1.Confirmation
	err = g.ask(ctx, func(c headroomv1connect.ClusterServiceClient) error {
		res, err := c.AwaitBudget(ctx, connect.NewRequest(&headroomv1.AwaitBudgetRequest{Revision: revision, WaitMs: wait.Milliseconds()}))
		if err == nil {
			all = res.Msg.GetConfirmations()
		}
		return err
	})
	if err == nil && (len(all) == 0 || slices.ContainsFunc(all, func(c *headroomv1.Confirmation) bool { return c.AfterMs == nil })) {
		err = fmt.Errorf("bench: a cut was not confirmed by every node within %v, or lowered none", wait)
	}
	return err
}

// budget is the site's budget with so much for each node.
func (o *clusterOptions) budget(each units.Power) units.Power { return units.Power(o.nodes) * each }

const (
	// What each node may have on average while they exchange, and what a cut leaves it.
	// Their loads demand 165 W on average, so all watts of both are granted.
	tightBudget = 150 * units.Watt
	cutBudget   = 110 * units.Watt
	// mostlyGiven is the part of the budget that nodes hold once a raise has come through; plans
	// leave the rest rather than move it.
	mostlyGiven = 0.95
	// warmUpSpan is how long a load runs before it is measured.
	warmUpSpan = 3 * time.Second
	// againMost bounds the cuts that are repeated because the leader changed during them, as it
	// may on a machine that is too busy for the servers' heartbeats.
	againMost = 3
)

// trial is three coordinators and their nodes.
type trial struct {
	*run
	clusterOptions

	group *group
	fleet *fleet
}

// clusterBench measures coordinators under exchanging nodes, then etcd.
func clusterBench(ctx context.Context, r *run) error {
	t := &trial{run: r, clusterOptions: r.cluster}
	if err := t.measure(ctx); err != nil || t.noEtcd {
		return err
	}
	if err := t.etcd(ctx); err != nil {
		t.note("etcd: not run: %v", err)
	}
	return nil
}

// measure measures one part after the other.
func (t *trial) measure(ctx context.Context) (err error) {
	if t.group, err = newGroup(t.run, 3, t.budget(nodeRated)); err != nil {
		return err
	}
	defer t.end(t.group.programs.Close)
	if err := t.group.startAll(ctx); err != nil {
		return err
	}
	t.fleet = startFleet(ctx, t.nodes, t.group.Addresses(), t.seed)
	defer t.fleet.stop()
	err = await(ctx, 90*time.Second, fmt.Sprintf("%d nodes with a lease", t.nodes), func() bool {
		_, held := t.fleet.holds()
		return held == t.nodes
	})
	for _, part := range []func(context.Context) error{t.tighten, t.steady, t.cutAll, t.killAll} {
		if err == nil {
			err = part(ctx)
		}
	}
	return err
}

// tighten sets the tight budget and waits until the nodes hold nearly all of it, and not more.
func (t *trial) tighten(ctx context.Context) error {
	full := t.budget(tightBudget)
	if _, err := t.group.setBudget(ctx, full); err != nil {
		return err
	}
	return await(ctx, 60*time.Second, "the budget granted", func() bool {
		sum, held := t.fleet.holds()
		return held == t.nodes && sum <= full && sum.Watts() >= mostlyGiven*full.Watts()
	})
}

// steady measures exchanges, CPU and log while only loads change.
func (t *trial) steady(ctx context.Context) error {
	var servers []server
	for id, p := range t.group.running {
		servers = append(servers, server{p, filepath.Join(t.dir, id)})
	}
	cpu, log, err := t.watch(ctx, servers, func() { t.fleet.exchanges() })
	if err != nil {
		return err
	}
	took := t.fleet.exchanges()
	t.put("exchange", took, nil, "%d nodes, %d exchanges; a tick comes once a second, and soon after an acknowledgement that frees watts", t.nodes, len(took))
	t.put("server-cpu", one(cpu), nil, "%d nodes", t.nodes)
	t.put("server-log", one(log), nil, "a new load on each node every %v", loadLasts)
	return nil
}

// server is a process and the folder of its log.
type server struct {
	program *cluster.Program
	dir     string
}

// watch lets servers work for a while after warming up, when begin is called: their CPU in us per s and node,
// and the bytes per s that each wrote to its log, on average.
func (t *trial) watch(ctx context.Context, servers []server, begin func()) (cpu, log float64, err error) {
	look := func(sign float64) {
		for _, s := range servers {
			spent, errCPU := cpuTime(s.program.Pid())
			written, errLog := logBytes(s.dir)
			cpu, log = cpu+sign*1e6*spent.Seconds()/float64(t.nodes), log+sign*float64(written)/float64(len(servers))
			err = errors.Join(err, errCPU, errLog)
		}
	}
	if !pause.For(ctx, warmUpSpan) {
		return 0, 0, ctx.Err()
	}
	begin()
	t.note("cluster: measuring for %v", t.duration)
	look(-1)
	began := time.Now()
	if !pause.For(ctx, t.duration) {
		return 0, 0, ctx.Err()
	}
	look(1)
	seconds := time.Since(began).Seconds()
	return cpu / seconds, log / seconds, err
}

// cutAll cuts the budget repeatedly, at any moment of the leader's second.
func (t *trial) cutAll(ctx context.Context) error {
	var took []float64
	for again := 0; len(took) < t.cuts; {
		if !pause.For(ctx, mathrand.N(time.Second)) {
			return ctx.Err()
		}
		began := time.Now()
		err := t.group.cut(ctx, t.budget(cutBudget))
		switch {
		case lostLeader(err) && again < againMost:
			again++
		case err != nil:
			return err
		default:
			took = append(took, time.Since(began).Seconds())
			t.note("cluster: cut %d of %d: %.2f s", len(took), t.cuts, took[len(took)-1])
		}
		if err := t.tighten(ctx); err != nil {
			return err
		}
	}
	t.put("cut", took, nil, "%d cuts of %d nodes from %v to %v each; the slowest %.2f s", len(took), t.nodes, tightBudget, cutBudget, slices.Max(took))
	return nil
}

// lostLeader reports whether a call failed because the leader changed: no server
// answered, or the next leader, which did not follow the cut.
func lostLeader(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeNotFound || code == connect.CodeDeadlineExceeded || code == connect.CodeUnavailable)
}

// killAll kills leaders and starts each again. It integrates what the nodes hold above the budget.
func (t *trial) killAll(ctx context.Context) error {
	var first []float64
	over := 0.0
	for len(first) < t.kills {
		took, w, err := t.kill(ctx)
		if err != nil {
			return err
		}
		first, over = append(first, took.Seconds()), over+w
		t.note("cluster: kill %d of %d: %.2f s", len(first), t.kills, took.Seconds())
	}
	t.put("failover", first, nil, "%d kills with %d nodes", len(first), t.nodes)
	t.put("failover-over", one(over), nil, "integral of (sum of the caps in force - budget)+ from each kill to the last node's new grant")
	return nil
}

// kill returns when the first node held a grant of the next leader, and the W s above the budget until every node did.
func (t *trial) kill(ctx context.Context) (took time.Duration, over float64, err error) {
	if err := t.tighten(ctx); err != nil {
		return 0, 0, err
	}
	leader, err := t.group.awaitHealthy(ctx)
	if err == nil && !pause.For(ctx, mathrand.N(time.Second)) {
		err = ctx.Err()
	}
	if err != nil {
		return 0, 0, err
	}
	at := time.Now()
	t.fleet.watch(t.budget(tightBudget), at)
	t.group.running[leader].Kill()
	err = await(ctx, 30*time.Second, "a grant of the next leader at every node", func() bool {
		first, watts, all := t.fleet.watched(time.Now())
		took, over = first.Sub(at), watts
		return all
	})
	return took, over, errors.Join(err, t.group.start(leader))
}

// logBytes is how much is written in the logs below dir: the files named *.wal, without
// the zeros after their last entry. Both raft-wal and etcd reserve a whole file before they
// write to it, so file sizes alone would mean nothing. Files may go meanwhile.
func logBytes(dir string) (sum int64, err error) {
	all := os.DirFS(dir)
	err = fs.WalkDir(all, ".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".wal") {
			var data []byte
			data, err = fs.ReadFile(all, path)
			sum += int64(len(bytes.TrimRight(data, "\x00")))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sum, err
}
