package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// clusterOptions are the flags of `powerlab bench cluster`.
type clusterOptions struct {
	nodes       int
	duration    time.Duration
	cuts, kills int
	gossip      int
	seed        uint64
	noEtcd      bool
	bin         string
}

// Bounds of the flags.
const (
	clusterNodesMost  = 5000
	clusterGossipMost = 200
	clusterTimesMost  = 100
	clusterSpanMost   = 10 * time.Minute
)

// clusterReport is what `powerlab bench cluster -o json` prints. What could not be
// measured is nil; all but Plan and Tick is of Nodes nodes that exchange over loopback.
type clusterReport struct {
	Nodes int `json:"nodes"`
	// Exchange is from the sending of a heartbeat to a lease that answers it.
	Exchange quantiles `json:"exchange_s"`
	// CPU of the three coordinators together, s per s and node.
	CPU *float64 `json:"cpu_per_node_s_per_s"`
	// Cut is from the sending of the command until the leader has every node's read-back.
	Cut quantiles `json:"budget_cut_s"`
	// Failover is from kill -9 of the leader until a node holds a grant of the next one.
	Failover quantiles `json:"failover_s"`
	// FailoverOver is what nodes held above the budget in all failovers, in W s.
	FailoverOver *float64 `json:"failover_over_budget_ws"`
	// Log is what each coordinator wrote into its raft log, in bytes per s.
	Log *float64 `json:"log_bytes_per_s"`
	// Plan is dividing the budget among 10,000 simulated nodes.
	Plan quantiles `json:"plan_10000_s"`
	// Tick is the leader's whole tick of 10,000 simulated nodes, Plan included.
	Tick quantiles `json:"tick_10000_s"`
	// Etcd are ratios of the figures above to etcd's under the same leases: exchange_p50,
	// exchange_p99, cpu_per_node, log_bytes. Empty without etcd.
	Etcd map[string]float64 `json:"etcd_ratio"`

	items   []Item
	machine Machine
	noise   Noise
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

func newClusterCommand() *cobra.Command {
	var o clusterOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Benchmark three coordinators under many nodes, and etcd with the same leases",
		Long: `Starts three coordinators as processes. Nodes in this process run powerd's own exchange with them
over loopback: streams, heartbeats, leases and acknowledgements. Only their hardware is simplified
(a cap takes effect at once), and their state directory is in memory.

It measures exchanges, the coordinators' CPU and log, budget cuts, kills of the leader, a whole tick
of 10,000 simulated nodes, and gossip. Where etcd is installed, it is measured with the same number
of leases: each node renews its own and makes one transaction a second.

A missed goal is reported but is not a failure. The exit code is 8 if a benchmark could not be measured.`,
		Example: "  powerlab bench cluster\n  powerlab bench cluster --nodes 100 --duration 5s --cuts 3 --kills 2\n  powerlab bench cluster -o json > cluster.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			report, err := o.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := report.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), &out); err != nil {
				return err
			}
			return (&Report{Items: report.items}).verdict()
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.nodes, "nodes", 1000, "number of nodes")
	f.DurationVar(&o.duration, "duration", 30*time.Second, "duration of each measurement of exchanges, CPU, log, etcd and gossip")
	f.IntVar(&o.cuts, "cuts", 20, "number of budget cuts")
	f.IntVar(&o.kills, "kills", 10, "number of kills of the leader")
	f.IntVar(&o.gossip, "gossip", 100, "number of gossip members")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the nodes' loads")
	f.BoolVar(&o.noEtcd, "no-etcd", false, "do not measure etcd")
	f.StringVar(&o.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	out.Flags(cmd)
	return cmd
}

func (o *clusterOptions) check() error {
	for _, x := range []struct {
		flag         string
		v, low, high int
	}{
		{"nodes", o.nodes, 1, clusterNodesMost},
		{"cuts", o.cuts, 1, clusterTimesMost},
		{"kills", o.kills, 1, clusterTimesMost},
		{"gossip", o.gossip, 3, clusterGossipMost},
	} {
		if x.v < x.low || x.v > x.high {
			return cli.Usage("--%s %d: must be from %d to %d", x.flag, x.v, x.low, x.high)
		}
	}
	if o.duration < time.Second || o.duration > clusterSpanMost {
		return cli.Usage("--duration %v: must be from 1s to %v", o.duration, clusterSpanMost)
	}
	return nil
}

// most bounds the whole run.
func (o *clusterOptions) most() time.Duration {
	return 4*time.Minute + 3*o.duration + time.Duration(o.cuts)*10*time.Second + time.Duration(o.kills)*20*time.Second
}

// clusterRun is one run of the command.
type clusterRun struct {
	clusterOptions
	*run

	report *clusterReport
	ours   burden // for the comparison with etcd
	noise  calibration
}

// run measures one part after the other. A part that fails gives an item without a
// value, and the next one begins; an error is an interrupt.
func (o *clusterOptions) run(ctx context.Context, progress io.Writer) (*clusterReport, error) {
	opts := Options{Bin: o.bin, Progress: progress}
	if err := opts.complete(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headroom-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: scratch folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	timed, cancel := context.WithTimeout(ctx, o.most())
	defer cancel()
	c := &clusterRun{
		clusterOptions: *o, run: &run{Options: opts, dir: dir},
		report: &clusterReport{Nodes: o.nodes, Etcd: map[string]float64{}, machine: thisMachine()},
	}
	for _, part := range []struct {
		name, what string
		run        func(context.Context) error
	}{
		{"gossip", "what gossip costs a member", c.gossipPart},
		{"plan-10000", "whole ticks of 10,000 simulated nodes", c.planPart},
		{"cluster", "three coordinators under exchanging nodes", c.clusterPart},
		{"etcd", "etcd under the same leases", c.etcdPart},
	} {
		c.noise.run()
		c.note("%s: %s", part.name, part.what)
		began := time.Now()
		if err := part.run(timed); err != nil {
			c.note("%s: not measured: %v", part.name, err)
			c.add(newItem(part.name, part.what, "").say("not measured: %v", err))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.note("%s: %.0f s", part.name, time.Since(began).Seconds())
	}
	c.noise.run()
	c.report.noise, c.report.machine.LoadEnd = c.noise.noise(), loadAverage()
	return c.report, nil
}

func (c *clusterRun) add(items ...Item) { c.report.items = append(c.report.items, items...) }

func (c *clusterRun) gossipPart(ctx context.Context) error {
	cost, err := measureGossip(ctx, c.gossip, c.duration)
	if err != nil {
		return err
	}
	c.add(
		newItem("gossip", "gossip that a member sends at rest, UDP and TCP", "B/s").is(cost.perSecond).
			say("%d members; %.2f packets a second each", cost.members, cost.packets),
		newItem("gossip-packet", "the largest packet of gossip", "B").is(float64(cost.largest)).aim(atMost(1400, "<= 1400 B")).
			say("%d members that all came at once", cost.members),
	)
	c.note("gossip: %.0f bytes and %.2f packets per second and member of %d; largest packet %d bytes",
		cost.perSecond, cost.packets, cost.members, cost.largest)
	return nil
}

// planNodes is how many nodes the planned cluster has.
const planNodes = 10_000

func (c *clusterRun) planPart(ctx context.Context) error {
	tree, homes, err := forest(planNodes)
	if err != nil {
		return err
	}
	nodes := crowd(homes, seeded(c.seed))
	most := min(20*time.Second, c.duration)
	planned := divideOften(tree, nodes, 60, most)
	took, err := carryOut(ctx, tree, nodes, 60, most)
	if err != nil {
		return err
	}
	c.report.Plan, c.report.Tick = quantilesOf(planned), quantilesOf(took)
	c.add(newItem("cluster-plan", "dividing a budget among 10,000 simulated nodes", "s").spread(planned).aim(atMost(0.010, "<= 10 ms")).
		say("%d plans in a tree of four levels", len(planned)))
	c.add(newItem("cluster-tick", "a whole tick of 10,000 simulated nodes: decided, encoded, decoded, applied, answered", "s").spread(took).aim(atMost(0.030, "<= 30 ms")).
		say("%d ticks, each with every demand new, in a tree of four levels", len(took)))
	return nil
}

// clusterPart is a group of coordinators and its nodes.
func (c *clusterRun) clusterPart(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(c.Bin, "coordinator")); err != nil {
		return fmt.Errorf("program coordinator not found in %s; build it with make build: %w", c.Bin, err)
	}
	g, err := startGroup(ctx, c.run, filepath.Join(c.dir, "group"), 3, c.budget(nodeRated))
	if err != nil {
		return err
	}
	defer c.end(g.stop)
	f := startFleet(ctx, c.nodes, g.addrs(), c.seed)
	defer f.stop()
	t := &trial{clusterRun: c, group: g, fleet: f}
	if err := errors.Join(t.comeUp(ctx), t.steady(ctx)); err != nil {
		return err
	}
	return errors.Join(t.cutAll(ctx), t.killAll(ctx))
}

// etcdPart compares with etcd, and notes if it is not installed.
func (c *clusterRun) etcdPart(ctx context.Context) error {
	path, err := findEtcd()
	if c.noEtcd || err != nil {
		if c.noEtcd {
			err = errLeftOut
		}
		c.note("etcd: not run: %v", err)
		return nil
	}
	peer, err := bearEtcd(ctx, path, filepath.Join(c.dir, "etcd"), c.nodes, c.duration, c.note)
	if err != nil {
		return err
	}
	if len(c.ours.took) == 0 || len(peer.took) == 0 {
		return fmt.Errorf("exchanges of both: %w", errNotYet)
	}
	if peer.failed > 0 {
		c.note("etcd: %d of %d exchanges failed, for example: %v", peer.failed, peer.failed+len(peer.took), peer.failure)
	}
	c.compare(peer, etcdVersion(ctx, path))
	return nil
}

// compare puts etcd's figures beside ours.
func (c *clusterRun) compare(peer burden, version string) {
	beside := map[string]struct {
		ours, peer float64
	}{
		"exchange_p50": {quantile(c.ours.took, 0.5), quantile(peer.took, 0.5)},
		"exchange_p99": {quantile(c.ours.took, 0.99), quantile(peer.took, 0.99)},
		"cpu_per_node": {c.ours.cpu, peer.cpu},
		"log_bytes":    {c.ours.log, peer.log},
	}
	for name, x := range beside {
		if r := finite(x.ours / x.peer); r != nil {
			c.report.Etcd[name] = *r
		}
	}
	for i, item := range c.report.items {
		switch item.Name {
		case "cluster-exchange":
			item = item.against(beside["exchange_p99"].peer)
			item.Note += fmt.Sprintf("; %s: p50 %.4f s, ratio %.3g; %d exchanges, %d failed",
				version, beside["exchange_p50"].peer, c.report.Etcd["exchange_p50"], len(peer.took), peer.failed)
		case "cluster-cpu":
			item = item.against(1e6 * peer.cpu)
		case "cluster-log":
			item = item.against(peer.log)
		}
		c.report.items[i] = item
	}
}

// print writes the report; as JSON the machine and its noise go to errs, for the
// report has no place for them.
func (r *clusterReport) print(w, errs io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		cli.Notef(errs, "machine: %v", r.machine)
		cli.Notef(errs, "noise: %v", r.noise)
		return out.JSON(w, r)
	}
	return (&Report{Items: r.items, Machine: r.machine, Noise: r.noise}).print(w, out)
}
