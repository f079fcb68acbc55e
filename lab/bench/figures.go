package bench

import (
	"context"
	"fmt"
)

// figure is one row of the report.
type figure struct {
	name, what, unit string
	// at is the quantile of the repetitions that the goal is about; 0: the figure is one value.
	at   float64
	goal *goal
}

// goal bounds the value, or its ratio to the peer.
type goal struct {
	low, high float64
	ratio     bool
}

// most is a goal of values that are never negative.
func most(high float64) *goal { return &goal{high: high} }

// text is the goal in words.
func (f figure) text() string {
	unit := f.unit
	if f.goal.ratio {
		unit = "x the peer"
	}
	switch {
	case f.goal.low != 0:
		return fmt.Sprintf("%g..%g %s", f.goal.low, f.goal.high, unit)
	case f.at > 0 && f.at < 1:
		return fmt.Sprintf("p%g <= %g %s", 100*f.at, f.goal.high, unit)
	}
	return fmt.Sprintf("<= %g %s", f.goal.high, unit)
}

// benchmark measures some figures in one go.
type benchmark struct {
	name, what string
	programs   []string // of Bin that it starts
	run        func(ctx context.Context, r *run) error
	figures    []figure
}

// suite lists the benchmarks, the short ones first.
func suite() []benchmark {
	return []benchmark{
		{"cap-step", "how fast and how cleanly a new cap is met, on the emulated plant in virtual time", nil, capStep, []figure{
			{"cap-step", "time until wall power stays within 2 % of a new cap", "s", 0.99, most(1)},
			{"cap-step-over", "highest wall power above a new cap once it was met, the worst step", "%", 1, most(3)},
			{"cap-step-over-time", "longest stretch 1 % or more above a new cap once it was met", "s", 1, most(0.25)},
			{"cap-step-mean", "steady mean against the cap", "%", 0, &goal{low: -2}},
		}},
		{"wall-step", "the same with wall power from a BMC that updates every 2 s, under changing loads", nil, wallStep, []figure{
			{"wall-step", "time until wall power stays within 2 % of a new cap", "s", 0.99, most(4)},
		}},
		{"plan", "time to divide a budget, and for a whole tick, with up to 10,000 nodes", nil, plan, []figure{
			{"plan-100", "dividing a budget among 100 nodes in a tree of four levels", "ms", 0.5, nil},
			{"plan-1000", "dividing a budget among 1,000 nodes", "ms", 0.5, nil},
			{"plan-10000", "dividing a budget among 10,000 nodes", "ms", 0.5, most(10)},
			{"tick-10000", "a whole tick of 10,000 nodes: decided, encoded, decoded, applied, leases made", "ms", 0.5, most(30)},
		}},
		{"queue", "time to solve a priority queue of DIAS's size, 62 phases a class", nil, queueModel, []figure{
			{"queue-2", "priority-queue model of DIAS's size, 2 classes of 62 phases", "ms", 0.99, most(100)},
			{"queue-3", "priority-queue model of DIAS's size, 3 classes of 62 phases", "ms", 0.99, most(100)},
		}},
		{"sample", "cost of one sample of the power zones", nil, sample, []figure{
			{"sample", "one sample: every counter, and both limits of each package", "us", 0.5, &goal{high: 1.2, ratio: true}},
		}},
		{"dispatch", "tasks that take no time through one master over RPC", nil, dispatchTasks, []figure{
			{"dispatch", "time per task from distributor through a master to workers and back", "us", 0, most(50)},
		}},
		{"agent", "CPU and memory of powerd on an idle emulated node", []string{"coordinator", "powerd", "powerlab"}, agentCost, []figure{
			{"agent-cpu", "share of one core that powerd uses on an idle node, one loop each 250 ms", "%", 0, most(0.3)},
			{"agent-rss", "resident memory of that powerd", "MB", 0, most(20)},
		}},
		{"start", "powerd started after kill -9", []string{"powerd", "powerlab"}, agentStart, []figure{
			{"agent-start", "powerd started: until its fail-safe cap is written and reads back", "ms", 0.99, most(100)},
		}},
		{"cluster", "three coordinators under 1,000 nodes, and etcd with the same leases", []string{"coordinator"}, clusterBench, []figure{
			{"exchange", "from a heartbeat to the lease that answers it", "s", 0.99, nil},
			{"server-cpu", "CPU of the three coordinators together, per second and node", "us", 0, nil},
			{"server-log", "bytes that each coordinator writes to its raft log, per second", "B", 0, nil},
			{"cut", "a budget cut, sent: until the leader has every node's read-back", "s", 0.99, most(2)},
			{"failover", "leader killed with SIGKILL: until a node holds a grant of the next leader", "s", 0.99, most(3)},
			{"failover-over", "sum of the caps above the budget in all failovers", "W s", 0, most(0)},
		}},
	}
}
