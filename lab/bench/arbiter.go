package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

// Sizes of the arbiter's benchmark: a cluster of this many nodes with all of its containers busy.
const (
	arbiterJobs, arbiterContainers, arbiterNodes = 1000, 10_000, 500
	arbiterMost                                  = 20 // ms
	// arbiterTask is the mean time of a task.
	arbiterTask = 10 * time.Second
)

// contenders are jobs of three classes in the middle of their lives, a third of them with deadlines, and the nodes that
// they run on.
func contenders(rng *rand.Rand) arbiter.Look {
	look := arbiter.Look{Joint: true, Pools: map[string]arbiter.Pool{"": {Containers: arbiterContainers, Overhead: 1}}}
	for i := range arbiterNodes {
		look.Nodes = append(look.Nodes, arbiter.Node{Name: fmt.Sprintf("n%03d", i), Target: 150 * units.Watt, Floor: nodeFloor, Most: nodeMost})
	}
	for i := range arbiterJobs {
		tasks := 50 + rng.IntN(200)
		done := rng.IntN(tasks / 2)
		c := arbiter.Contender{
			ID: fmt.Sprintf("job-%04d", i), Class: fmt.Sprintf("class-%d", i%3), Rank: i % 3, Tasks: tasks, Running: arbiterContainers/arbiterJobs - 1, Floor: 0.6,
			Age: time.Duration(rng.IntN(600)) * time.Second, Elapsed: time.Duration(1+rng.IntN(300)) * time.Second, Run: 1, MaySprint: true, MayDeflate: true,
			On: map[string]int{}, Offer: arbiter.Offer{
				Domain: fmt.Sprintf("row-%d", i%10), Balance: 15 * units.Kilojoule, Capacity: 20 * units.Kilojoule, Rise: units.Power(50+rng.IntN(100)) * units.Watt, Nodes: 3,
			},
		}
		c.Pending = tasks - done - c.Running
		if i%3 == 0 {
			c.Deadline = c.Elapsed + time.Duration(rng.IntN(300))*time.Second
		}
		for range c.Running {
			c.On[look.Nodes[rng.IntN(len(look.Nodes))].Name]++
		}
		at := c.Elapsed + time.Duration(rng.IntN(300))*time.Second
		c.Outlook = arbiter.Outlook{
			Slow: progress.Finish{At: at, Low: at, High: at, Known: true}, Uncapped: at * 2 / 3, Capped: true, CapShare: 0.7, Speed: 1.2 + rng.Float64()/2,
			Rest: progress.Rest{Work: float64(tasks - done), Task: time.Duration((0.5 + rng.Float64()) * float64(arbiterTask)), Ended: done, Known: true},
		}
		look.Jobs = append(look.Jobs, c)
	}
	return look
}

// allocation is the same jobs as CAB's allocator takes them.
func allocation(look *arbiter.Look) (jobs []containers.Job) {
	for i := range look.Jobs {
		c := &look.Jobs[i]
		jobs = append(jobs, containers.Job{
			Name: c.ID, Elapsed: c.Elapsed, Finish: c.Outlook.Slow.At, Uncapped: c.Outlook.Uncapped, Held: c.Running + 1, Overhead: 1, Most: c.Running + c.Pending + 1, Beta: 0.9, Known: true,
		})
	}
	return jobs
}

// arbitrate measures a decision of the arbiter over all levers, beside dividing the containers of the same jobs by CAB.
func arbitrate(ctx context.Context, r *run) ([]Item, error) {
	rng := rand.New(rand.NewPCG(1, 17))
	look := contenders(rng)
	jobs := allocation(&look)
	var movers arbiter.Movers
	var ours, peer []float64
	runs, most := pick(r, 200, 20), pick(r, 3*time.Second, time.Second)
	for start := time.Now(); len(ours) < planLeast || len(ours) < runs && time.Since(start) < most; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for i := range look.Jobs { // what a look shows differs from the one before
			c := &look.Jobs[i]
			c.Outlook.Rest.Work = max(1, c.Outlook.Rest.Work-rng.Float64())
		}
		began := time.Now()
		out := movers.Step(time.Duration(len(ours))*5*time.Second, look)
		middle := time.Now()
		if _, err := containers.Allocate(containers.Stretch, arbiterContainers, jobs, containers.Settings{}); err != nil {
			return nil, err
		}
		ours, peer = append(ours, 1000*middle.Sub(began).Seconds()), append(peer, 1000*time.Since(middle).Seconds())
		if len(out.Moves) != len(look.Jobs) {
			return nil, fmt.Errorf("%d moves of %d jobs: %w", len(out.Moves), len(look.Jobs), errNotYet)
		}
	}
	return []Item{newItem(fmt.Sprintf("arbiter-%d", arbiterJobs), "deciding about 1,000 jobs on 10,000 containers over all levers", "ms").spread(ours).is(quantile(ours, 0.5)).
		against(quantile(peer, 0.5)).aim(atMost(arbiterMost, "<= 20 ms")).
		say("median of %d, the fastest %.2f ms; peer: dividing the containers of the same jobs by stretch, without other levers", len(ours), slices.Min(ours))}, nil
}
