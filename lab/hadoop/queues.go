package hadoop

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"headroom/internal/durable"
)

// Queue is one queue: of the fair scheduler with all settings; the capacity scheduler
// takes its name, and guarantees all queues the same part.
type Queue struct {
	// Name is the queue's name below root, such as q1.
	Name string
	// Weight is its part when queues compete; 0 means 1.
	Weight float64
	// MaxMB and MaxVCores bound it; 0 for no bound. Containers above a bound that is
	// lowered are not ended, they run out.
	MaxMB, MaxVCores int
}

// Queues3 are root.q1 to root.q3, of equal weight and without bounds.
func Queues3() []Queue { return []Queue{{Name: "q1"}, {Name: "q2"}, {Name: "q3"}} }

// unbounded stands for no bound in an allocation file, which requires both resources.
const unbounded = 1 << 30

// allocations is the fair scheduler's allocation file. A queue that it does not name
// takes no job.
func allocations(queues []Queue) string {
	var text strings.Builder
	text.WriteString("<?xml version=\"1.0\"?>\n<allocations>\n" +
		"  <queueMaxAppsDefault>1000</queueMaxAppsDefault>\n  <queueMaxAMShareDefault>-1.0</queueMaxAMShareDefault>\n")
	for _, q := range queues {
		fmt.Fprintf(&text, "  <queue name=\"%s\">\n    <weight>%g</weight>\n", html.EscapeString(q.Name), cmp.Or(q.Weight, 1))
		if q.MaxMB > 0 || q.MaxVCores > 0 {
			fmt.Fprintf(&text, "    <maxResources>%d mb, %d vcores</maxResources>\n", cmp.Or(q.MaxMB, unbounded), cmp.Or(q.MaxVCores, unbounded))
		}
		text.WriteString("  </queue>\n")
	}
	text.WriteString("  <queuePlacementPolicy><rule name=\"specified\" create=\"false\"/><rule name=\"reject\"/></queuePlacementPolicy>\n</allocations>\n")
	return text.String()
}

// capacities is the capacity scheduler's configuration. One user may fill a queue, which
// may fill the cluster, application masters included.
func capacities(queues []Queue) properties {
	const prefix = "yarn.scheduler.capacity."
	var names []string
	p := properties{
		prefix + "maximum-am-resource-percent": "1", prefix + "node-locality-delay": "0",
		prefix + "resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
	}
	left := 100.0
	for i, q := range queues {
		part := math.Floor(left / float64(len(queues)-i))
		left -= part
		names = append(names, q.Name)
		p[prefix+"root."+q.Name+".capacity"] = strconv.FormatFloat(part, 'f', -1, 64)
		p[prefix+"root."+q.Name+".user-limit-factor"] = "100"
	}
	p[prefix+"root.queues"] = strings.Join(names, ",")
	return p
}

// SetMaximum sets maximum-capacity of a queue, percent of the cluster, as an operator does while the
// capacity scheduler runs. The ResourceManager's yarn.scheduler.configuration.store.class must allow it.
func (c *Cluster) SetMaximum(ctx context.Context, queue, percent string) error {
	const change = `{"update-queue":[{"queue-name":"root.%s","params":{"entry":[{"key":"maximum-capacity","value":"%s"}]}}]}`
	return c.set(ctx, http.MethodPut, "/scheduler-conf", fmt.Sprintf(change, queue, percent))
}

// Maximum is maximum-capacity of a queue as the capacity scheduler's configuration has it; "" for none.
func (c *Cluster) Maximum(ctx context.Context, queue string) (string, error) {
	type property struct{ Name, Value string }
	all, err := get[[]property](ctx, c, "/scheduler-conf", "property")
	for _, p := range all {
		if p.Name == "yarn.scheduler.capacity.root."+queue+".maximum-capacity" {
			return p.Value, err
		}
	}
	return "", err
}

// refreshMost bounds one admin call: many times what a JVM takes to start on a machine
// that is not busy.
const refreshMost = 2 * time.Minute

// SetQueues replaces the allocation file and has the ResourceManager read it at once,
// which would otherwise take it up to 15 s. It costs one JVM's start. The stock scheduler
// adds queues and changes weights and bounds; queues that are no longer named stay.
func (c *Cluster) SetQueues(ctx context.Context, queues []Queue) error {
	if err := c.writeQueues(queues); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refreshMost)
	defer cancel()
	return c.tool(ctx, "refreshQueues", "org.apache.hadoop.yarn.client.cli.RMAdminCLI", "-refreshQueues")
}

func (c *Cluster) writeQueues(queues []Queue) error {
	return durable.Replace(durable.OS{}, c.path("conf", "fair-scheduler.xml"), []byte(allocations(queues)), 0o644)
}
