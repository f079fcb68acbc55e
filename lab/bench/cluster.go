package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
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

// quantiles are in seconds.
type quantiles struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

func quantilesOf(values []float64) quantiles {
	if len(values) == 0 {
		return quantiles{}
	}
	return quantiles{finite(quantile(values, 0.5)), finite(quantile(values, 0.99))}
}

// clusterReport is the output of `powerlab bench cluster -o json`. Values that could not be
// measured are nil; all but Plan and Tick are of Nodes nodes that exchange over loopback.
type clusterReport struct {
	Nodes int `json:"nodes"`
	// Exchange is from sending a heartbeat to the lease that answers it.
	Exchange quantiles `json:"exchange_s"`
	// CPU of the three coordinators together, s per s and node.
	CPU *float64 `json:"cpu_per_node_s_per_s"`
	// Cut is from sending the command until the leader has every node's read-back.
	Cut quantiles `json:"budget_cut_s"`
	// Failover is from kill -9 of the leader until a node holds a grant of the next one.
	Failover quantiles `json:"failover_s"`
	// FailoverOver is what nodes held above the budget in all failovers, in W s.
	FailoverOver *float64 `json:"failover_over_budget_ws"`
	// Log is what each coordinator wrote to its raft log, in bytes per s.
	Log *float64 `json:"log_bytes_per_s"`
	// Plan is dividing the budget among 10,000 simulated nodes.
	Plan quantiles `json:"plan_10000_s"`
	// Tick is the leader's whole tick of 10,000 simulated nodes, Plan included.
	Tick quantiles `json:"tick_10000_s"`
	// Etcd are ratios of the figures above to etcd's under the same leases: exchange_p50,
	// exchange_p99, cpu_per_node, log_bytes. Empty without etcd.
	Etcd map[string]float64 `json:"etcd_ratio"`
}

// clusterReportOf selects the fields from the readings of a run.
func clusterReportOf(nodes int, took map[string]reading) clusterReport {
	scaled := func(figure string, factor float64) (ours, peer []float64) {
		for _, v := range took[figure].values {
			ours = append(ours, factor*v)
		}
		for _, v := range took[figure].peer {
			peer = append(peer, factor*v)
		}
		return ours, peer
	}
	single := func(figure string, factor float64) *float64 {
		if v, _ := scaled(figure, factor); len(v) > 0 {
			return finite(v[0])
		}
		return nil
	}
	of := func(figure string, factor float64) quantiles { v, _ := scaled(figure, factor); return quantilesOf(v) }
	r := clusterReport{
		Nodes: nodes, Exchange: of("exchange", 1), CPU: single("server-cpu", 1e-6), Cut: of("cut", 1), Failover: of("failover", 1),
		FailoverOver: single("failover-over", 1), Log: single("server-log", 1), Plan: of("plan-10000", 1e-3), Tick: of("tick-10000", 1e-3), Etcd: map[string]float64{},
	}
	for name, x := range map[string]struct {
		figure string
		at     float64
	}{"exchange_p50": {"exchange", 0.5}, "exchange_p99": {"exchange", 0.99}, "cpu_per_node": {"server-cpu", 1}, "log_bytes": {"server-log", 1}} {
		if ours, peer := scaled(x.figure, 1); len(ours) > 0 && len(peer) > 0 {
			if ratio := finite(quantile(ours, x.at) / quantile(peer, x.at)); ratio != nil {
				r.Etcd[name] = *ratio
			}
		}
	}
	return r
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
			if err := o.complete(); err != nil {
				return err
			}
			report, took, err := measureAll(cmd.Context(), o, c)
			if err != nil {
				return err
			}
			if out.IsJSON() { // which has no place for them
				cli.Notef(cmd.ErrOrStderr(), "machine: %v", report.Machine)
				cli.Notef(cmd.ErrOrStderr(), "noise: %v", report.Noise)
				err = out.JSON(cmd.OutOrStdout(), clusterReportOf(c.nodes, took))
			} else {
				err = report.print(cmd.OutOrStdout(), &out)
			}
			if err != nil {
				return err
			}
			return report.complete()
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
	for _, x := range []struct {
		flag       string
		v, highest int
	}{{"nodes", o.nodes, 5000}, {"cuts", o.cuts, 100}, {"kills", o.kills, 100}} {
		if x.v < 1 || x.v > x.highest {
			return cli.Usage("--%s %d: must be from 1 to %d", x.flag, x.v, x.highest)
		}
	}
	if o.duration < time.Second || o.duration > 10*time.Minute {
		return cli.Usage("--duration %v: must be from 1s to 10m", o.duration)
	}
	return nil
}

// budget is the site's budget with so much for each node.
func (o *clusterOptions) budget(each units.Power) units.Power { return units.Power(o.nodes) * each }

// What each node may have on average while they exchange, and what a cut leaves it.
// Their loads demand 165 W on average, so all watts of both are granted.
const (
	tightBudget = 150 * units.Watt
	cutBudget   = 110 * units.Watt
)

const (
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
	*clusterOptions

	group *group
	fleet *fleet
}

// clusterBench measures coordinators under exchanging nodes, then etcd.
func clusterBench(ctx context.Context, r *run) error {
	o := &r.cluster
	g, err := startGroup(ctx, r, filepath.Join(r.dir, "group"), 3, o.budget(nodeRated))
	if err != nil {
		return err
	}
	t := &trial{run: r, clusterOptions: o, group: g, fleet: startFleet(ctx, o.nodes, g.addrs(), o.seed)}
	err = t.measure(ctx)
	t.fleet.stop()
	r.end(g.stop)
	if err != nil || o.noEtcd {
		return err
	}
	return t.besideEtcd(ctx)
}

// measure measures one part after the other.
func (t *trial) measure(ctx context.Context) error {
	began := time.Now()
	err := await(ctx, 90*time.Second, fmt.Sprintf("%d nodes with a lease", t.nodes), func() bool {
		_, held, _ := t.fleet.holds()
		return held == t.nodes
	})
	if err != nil {
		return err
	}
	t.note("cluster: %d nodes have a lease after %.1f s", t.nodes, time.Since(began).Seconds())
	for _, part := range []func(context.Context) error{t.tighten, t.steady, t.cutAll, t.killAll} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tighten sets the tight budget and waits until the nodes hold nearly all of it, and not more.
func (t *trial) tighten(ctx context.Context) error {
	full := t.budget(tightBudget)
	if _, err := t.group.setBudget(ctx, full); err != nil {
		return err
	}
	return await(ctx, 60*time.Second, "the budget granted", func() bool {
		sum, held, _ := t.fleet.holds()
		return held == t.nodes && sum <= full && sum.Watts() >= mostlyGiven*full.Watts()
	})
}

// steady measures exchanges, CPU and log while only loads change.
func (t *trial) steady(ctx context.Context) error {
	if !pause.For(ctx, warmUpSpan) {
		return ctx.Err()
	}
	t.note("cluster: measuring for %v", t.duration)
	var servers []server
	for _, m := range t.group.members {
		servers = append(servers, server{m.program, filepath.Join(t.group.dir, m.ID)})
	}
	t.fleet.exchanges()
	cpu, log, err := watch(ctx, servers, t.nodes, t.duration)
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

// watch lets servers work for a while: their CPU in us per s and node, and the bytes per s that
// each wrote to its log, on average.
func watch(ctx context.Context, servers []server, nodes int, span time.Duration) (cpu, log float64, err error) {
	look := func() (spent time.Duration, written int64, err error) {
		for _, s := range servers {
			t, errCPU := cpuTime(s.program.Pid())
			size, errLog := logBytes(s.dir)
			if spent, written = spent+t, written+size; errCPU != nil || errLog != nil {
				return 0, 0, fmt.Errorf("bench: watch %s: %w", s.dir, errors.Join(errCPU, errLog))
			}
		}
		return spent, written, nil
	}
	spent, written, err := look()
	began := time.Now()
	if err == nil && !pause.For(ctx, span) {
		err = ctx.Err()
	}
	if err != nil {
		return 0, 0, err
	}
	spentAfter, writtenAfter, err := look()
	seconds := time.Since(began).Seconds()
	return 1e6 * (spentAfter - spent).Seconds() / seconds / float64(nodes), float64(writtenAfter-written) / seconds / float64(len(servers)), err
}

// cutAll cuts the budget repeatedly, at any moment of the leader's second.
func (t *trial) cutAll(ctx context.Context) error {
	var took []float64
	again := 0
	for len(took) < t.cuts {
		if !pause.For(ctx, rand.N(time.Second)) {
			return ctx.Err()
		}
		began := time.Now()
		revision, err := t.group.setBudget(ctx, t.budget(cutBudget))
		open := 0
		if err == nil {
			open, err = t.group.awaitBudget(ctx, revision, 15*time.Second)
		}
		switch {
		case lostLeader(err) && again < againMost:
			again++
		case err != nil:
			return err
		case open > 0:
			return fmt.Errorf("bench: a cut confirmed by every node: %d not: %w", open, errNotYet)
		default:
			took = append(took, time.Since(began).Seconds())
			t.note("cluster: cut %d of %d: %.2f s", len(took), t.cuts, took[len(took)-1])
		}
		if err := t.tighten(ctx); err != nil {
			return err
		}
	}
	note := ""
	if again > 0 {
		note = fmt.Sprintf("; %d more left out: the leader changed during them", again)
	}
	t.put("cut", took, nil, "%d cuts of %d nodes from %v to %v each; the slowest %.2f s%s", len(took), t.nodes, tightBudget, cutBudget, slices.Max(took), note)
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
	var first, last []float64
	over := 0.0
	_, _, before := t.fleet.holds()
	for len(first) < t.kills {
		a, b, w, err := t.killOnce(ctx)
		if err != nil {
			return err
		}
		first, last, over = append(first, a.Seconds()), append(last, b.Seconds()), over+w
		t.note("cluster: kill %d of %d: %.2f s, every node %.2f s", len(first), t.kills, a.Seconds(), b.Seconds())
	}
	_, _, after := t.fleet.holds()
	t.put("failover", first, nil, "%d kills; all %d nodes within %.2f s; nodes fell to their fail-safe cap %d times", len(first), t.nodes, slices.Max(last), after-before)
	t.put("failover-over", one(over), nil, "integral of (sum of the caps in force - budget)+ from each kill to the last node's new grant")
	return nil
}

// killOnce returns when the first and the last node held a grant of the next leader, and the W s above the budget.
func (t *trial) killOnce(ctx context.Context) (first, last time.Duration, over float64, err error) {
	if err := t.group.awaitHealthy(ctx); err != nil {
		return 0, 0, 0, err
	}
	if err := t.tighten(ctx); err != nil {
		return 0, 0, 0, err
	}
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	m, err := t.group.leader(asking, func(c headroomv1connect.ClusterServiceClient) error {
		_, err := c.ListDomains(asking, connect.NewRequest(&headroomv1.ListDomainsRequest{}))
		return err
	})
	if err != nil {
		return 0, 0, 0, err
	}
	if !pause.For(ctx, rand.N(time.Second)) {
		return 0, 0, 0, ctx.Err()
	}
	old := t.fleet.newest()
	t.fleet.guard(t.budget(tightBudget))
	at := time.Now()
	m.program.Kill()
	err = await(ctx, 30*time.Second, "a grant of the next leader at every node", func() bool {
		a, b, all := t.fleet.reigned(old)
		first, last = a.Sub(at), b.Sub(at)
		return all
	})
	over = t.fleet.guard(0)
	if again := t.group.start(m); err == nil {
		err = again
	}
	return first, last, over, err
}

// besideEtcd gives the exchange, the CPU and the log their peers.
func (t *trial) besideEtcd(ctx context.Context) error {
	peer, err := bearEtcd(ctx, t.run, filepath.Join(t.dir, "etcd"))
	if err != nil {
		t.note("etcd: not run: %v", err)
		return nil
	}
	for figure, values := range map[string][]float64{"exchange": peer.took, "server-cpu": one(peer.cpu), "server-log": one(peer.log)} {
		of := t.took[figure]
		of.peer, of.note = values, of.note+"; peer: "+peer.version
		t.took[figure] = of
	}
	if peer.failed > 0 {
		t.note("etcd: %d of %d exchanges failed", peer.failed, peer.failed+len(peer.took))
	}
	return nil
}

// logBytes is how much is written in the logs below dir: the files named *.wal, without
// the zeros after their last entry. Both raft-wal and etcd reserve a whole file before they
// write to it, so file sizes alone would mean nothing.
func logBytes(dir string) (sum int64, err error) {
	all := os.DirFS(dir)
	err = fs.WalkDir(all, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".wal") {
			return ignoreGone(err)
		}
		data, err := fs.ReadFile(all, path)
		sum += int64(len(bytes.TrimRight(data, "\x00")))
		return ignoreGone(err)
	})
	return sum, err
}

// ignoreGone ignores a file that was removed since its folder was read.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
