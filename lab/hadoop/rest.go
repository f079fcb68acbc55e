package hadoop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"headroom/internal/pause"
	"headroom/lab/cluster"
)

// get reads what stands below a path of fields in one resource of the ResourceManager's REST interface.
func get[T any](ctx context.Context, c *Cluster, resource string, path ...string) (T, error) {
	return getFrom[T](ctx, c.RM()+"/ws/v1/cluster"+resource, path...)
}

// getFrom does the same at any of the daemons' web servers.
func getFrom[T any](ctx context.Context, resource string, path ...string) (v T, err error) {
	var text json.RawMessage
	err = cluster.Request(ctx, http.MethodGet, resource, "", &text)
	for _, field := range path {
		var fields map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(text, &fields)
		}
		if text = fields[field]; err == nil && (text == nil || string(text) == "null") {
			err = fmt.Errorf("%w: %s in %s", errNotFound, field, resource)
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	return v, err
}

// set changes a resource of the ResourceManager.
func (c *Cluster) set(ctx context.Context, method, resource, body string) error {
	return cluster.Request(ctx, method, c.RM()+"/ws/v1/cluster"+resource, body, nil)
}

// NodeState is the ResourceManager's state of a node.
type NodeState struct {
	// Name is the node's host name, State such as RUNNING or LOST.
	Name  string `json:"nodeHostName"`
	State string `json:"state"`
	// Containers run on it now and use UsedMB and UsedVCores.
	Containers int `json:"numContainers"`
	UsedMB     int `json:"usedMemoryMB"`
	UsedVCores int `json:"usedVirtualCores"`

	ID        string `json:"id"`
	FreeMB    int    `json:"availMemoryMB"`
	FreeCores int    `json:"availableVirtualCores"`
}

// offers reports whether the node offers just so much, used or free.
func (n *NodeState) offers(vcores, mb int) bool {
	return n.UsedMB+n.FreeMB == mb && n.UsedVCores+n.FreeCores == vcores
}

// States returns the ResourceManager's nodes by name.
func (c *Cluster) States(ctx context.Context) ([]NodeState, error) {
	nodes, err := get[[]NodeState](ctx, c, "/nodes", "nodes", "node")
	slices.SortFunc(nodes, func(a, b NodeState) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}

// AwaitNodes waits until the named nodes are RUNNING. It fails when a daemon of the
// cluster ends meanwhile.
func (c *Cluster) AwaitNodes(ctx context.Context, names ...string) error {
	return c.await(ctx, fmt.Sprintf("nodes %v are not all RUNNING", names), func() bool {
		nodes, err := c.States(ctx)
		return err == nil && !slices.ContainsFunc(names, func(name string) bool {
			return !slices.ContainsFunc(nodes, func(n NodeState) bool { return n.Name == name && n.State == "RUNNING" })
		})
	})
}

// Offer has every node offer so much from now on, and waits until the scheduler sees it.
// Containers that a node then holds too many of run on.
func (c *Cluster) Offer(ctx context.Context, vcores, mb int) error {
	body := fmt.Sprintf(`{"resource":{"memory":%d,"vCores":%d},"overCommitTimeout":-1}`, mb, vcores)
	var failed error
	err := c.await(ctx, fmt.Sprintf("the nodes do not offer %d vcores and %d MiB each", vcores, mb), func() bool {
		var nodes []NodeState
		nodes, failed = c.States(ctx)
		done := failed == nil
		for _, n := range nodes {
			if !n.offers(vcores, mb) {
				done = false
				failed = errors.Join(failed, c.set(ctx, http.MethodPost, "/nodes/"+n.ID+"/resource", body))
			}
		}
		return done
	})
	return errors.Join(err, failed)
}

// await looks until done is true. The error starts with not, which names what is missing.
func (c *Cluster) await(ctx context.Context, not string, done func() bool) error {
	for !done() {
		if err := c.running(); err != nil {
			return err
		}
		if !pause.For(ctx, look) {
			return fmt.Errorf("hadoop: %s: %w; see the logs in %s", not, ctx.Err(), c.path("logs"))
		}
	}
	return nil
}

// application is the ResourceManager's state of an application.
type application struct {
	ID          string `json:"id"`
	Queue       string `json:"queue"`
	State       string `json:"state"`
	FinalStatus string `json:"finalStatus"`
	Diagnostics string `json:"diagnostics"`
	StartedMs   int64  `json:"startedTime"`
	FinishedMs  int64  `json:"finishedTime"`
	Containers  int    `json:"runningContainers"`
}

func (a application) over() bool {
	return a.State == "FINISHED" || a.State == "FAILED" || a.State == "KILLED"
}

func (c *Cluster) application(ctx context.Context, id string) (application, error) {
	return get[application](ctx, c, "/apps/"+id, "app")
}

// tagged is the application that carries a tag.
func (c *Cluster) tagged(ctx context.Context, tag string) (application, error) {
	apps, err := get[[]application](ctx, c, "/apps?applicationTags="+tag, "apps", "app")
	if err == nil && len(apps) == 0 {
		err = errNotFound
	}
	return append(apps, application{})[0], err
}

// attempt is the ResourceManager's state of one life of an application's master.
type attempt struct {
	ID        int    `json:"id"`
	Container string `json:"containerId"`
	Node      string `json:"nodeId"`
}

// attempt is the newest of an application's attempts that has a container.
func (c *Cluster) attempt(ctx context.Context, application string) (newest attempt, err error) {
	all, err := get[[]attempt](ctx, c, "/apps/"+application+"/appattempts", "appAttempts", "appAttempt")
	for _, a := range all {
		if a.ID > newest.ID && a.Container != "" {
			newest = a
		}
	}
	if err == nil && newest.ID == 0 {
		err = fmt.Errorf("%w: application %s has no master yet", errNotFound, application)
	}
	return newest, err
}

// QueueUse is what a queue uses now, and the bound that is in force.
type QueueUse struct {
	// Name is the queue's full name, such as root.q1.
	Name      string
	Used, Max Resources
}

// Resources are an amount of memory in MiB, as YARN counts, and of virtual cores.
type Resources struct {
	MemoryMB int64 `json:"memory"`
	VCores   int64 `json:"vCores"`
}

// QueueUses are the queues below root, by name, as the scheduler sees them now.
func (c *Cluster) QueueUses(ctx context.Context) (queues []QueueUse, err error) {
	type queue struct { // of the fair scheduler, and of the capacity scheduler
		Name    string    `json:"queueName"`
		Used    Resources `json:"usedResources"`
		Max     Resources `json:"maxResources"`
		Path    string    `json:"queuePath"`
		InUse   Resources `json:"resourcesUsed"`
		Highest Resources `json:"maxEffectiveCapacity"`
	}
	all, err := get[[]queue](ctx, c, "/scheduler", "scheduler", "schedulerInfo", "rootQueue", "childQueues", "queue")
	if errors.Is(err, errNotFound) {
		all, err = get[[]queue](ctx, c, "/scheduler", "scheduler", "schedulerInfo", "queues", "queue")
	}
	for _, q := range all {
		if q.Path != "" {
			q.Name, q.Used, q.Max = q.Path, q.InUse, q.Highest
		}
		queues = append(queues, QueueUse{q.Name, q.Used, q.Max})
	}
	slices.SortFunc(queues, func(a, b QueueUse) int { return cmp.Compare(a.Name, b.Name) })
	return queues, err
}
