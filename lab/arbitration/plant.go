package arbitration

import (
	"fmt"
	"math"
	"time"

	"headroom/budget"
	"headroom/lab/events"
	"headroom/units"
)

// The machines of the study: each container is a twenty-eighth of the server of CAB's study.
const (
	perServer   = 28
	idleServer  = 100 * units.Watt
	ratedServer = 350 * units.Watt
	riseServer  = 100 * units.Watt // of a sprint, above the cap
	exponent    = 1.15             // of dynamic power over speed
	nodesMost   = 4
	slowest     = 0.05 // the speed below which no cap brings a machine, as a part of full speed
)

// scaled returns a server's power scaled to so many containers.
func scaled(p units.Power, containers int) units.Power {
	return p * units.Power(containers) / perServer
}

// node is one machine: its containers run tasks at one speed, which follows from its cap and from how many of them are busy.
type node struct {
	name        string
	containers  int
	idle, rated units.Power
	base, cap   units.Power // its share of the budget, and what it may draw now: more in a sprint
	most        units.Power // bounds its share; 0 for no bound
	down        bool

	// running are its tasks in the order of their ends, in time that passes as fast as they run.
	running events.Queue[float64, *attempt]
	// speed is how fast its tasks run, as a part of full speed; draws is what it draws. done is the time of running: the
	// work that a task that began at time 0 would have done, in seconds at full speed.
	speed float64
	draws units.Power
	done  float64
}

func (n *node) floor() units.Power { return n.idle + n.idle/8 }

func (n *node) sprinting() units.Power { return min(n.rated, n.base+scaled(riseServer, n.containers)) }

type attempt struct {
	job         *job
	task        int
	from, until float64 // the node's done when it began, and when it ends
	node        *node
	id          events.ID // in node.running
	slow        float64   // how many times as long it takes for the other tasks of its job as it would alone
}

// settle brings speed and draw up to the cap and to what runs.
func (n *node) settle() {
	if n.down {
		n.speed, n.draws = 0, 0
		return
	}
	n.speed, n.draws = speedAt(n.cap, n.idle, n.rated, n.containers, n.running.Len())
}

// speedAt returns how fast tasks run on a machine under a cap with so many of its containers busy, as a part
// of full speed, and what the machine draws then.
func speedAt(limit, idle, rated units.Power, containers, busy int) (speed float64, draws units.Power) {
	if busy == 0 {
		return 0, idle
	}
	dynamic := float64(rated-idle) * float64(busy) / float64(containers)
	room := max(0, float64(limit-idle))
	speed = math.Pow(room/dynamic, 1/exponent)
	switch {
	case speed >= 1:
		return 1, idle + units.Power(dynamic)
	case speed < slowest:
		return slowest, idle + units.Power(dynamic*math.Pow(slowest, exponent))
	}
	return speed, idle + units.Power(room)
}

func (n *node) free() int {
	if n.down {
		return 0
	}
	return n.containers - n.running.Len()
}

// newNodes divides containers among machines.
func newNodes(containers int) (nodes []*node) {
	count := min(nodesMost, containers)
	for i := range count {
		n := containers / count
		if i < containers%count {
			n++
		}
		nodes = append(nodes, &node{name: fmt.Sprintf("n%02d", i+1), containers: n, idle: scaled(idleServer, n), rated: scaled(ratedServer, n)})
	}
	return nodes
}

// plan divides a budget among machines as the coordinators do, by what each can use.
func plan(all []*node, watts units.Power) {
	var nodes []budget.Node
	for _, n := range all {
		demand := n.idle + units.Power(float64(n.rated-n.idle)*float64(n.running.Len())/float64(n.containers))
		most := n.rated
		if n.most > 0 {
			most = min(most, n.most)
		}
		if n.down {
			demand, most = n.idle, n.idle
		}
		nodes = append(nodes, budget.Node{Name: n.name, Domain: "site", Least: n.floor(), Most: most, Demand: demand, Weight: float64(n.containers)})
	}
	tree, err := budget.NewTree([]budget.Domain{{Name: "site", Budget: max(watts, 1)}})
	if err != nil {
		panic(err) // one domain with a budget above 0 W is a tree
	}
	caps := budget.Divide(tree, nodes, budget.Weighted).Caps
	for _, n := range all {
		n.base = caps[n.name]
	}
}

// speeds returns how much work all containers do in a second if all are busy, under the caps and in a sprint.
func speeds(nodes []*node) (slow, fast float64) {
	for _, n := range nodes {
		base, _ := speedAt(n.base, n.idle, n.rated, n.containers, n.containers)
		sprint, _ := speedAt(n.sprinting(), n.idle, n.rated, n.containers, n.containers)
		slow, fast = slow+base*float64(n.containers), fast+sprint*float64(n.containers)
	}
	return slow, fast
}

// seconds returns seconds as a time, rounded up.
func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s * float64(time.Second))) }
