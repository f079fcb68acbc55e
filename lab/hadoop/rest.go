package hadoop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"headroom/internal/pause"
	"headroom/lab/cluster"
)

// get reads one resource of the ResourceManager's REST interface, below /ws/v1/cluster.
func (c *Cluster) get(ctx context.Context, resource string, into any) error {
	return cluster.Request(ctx, http.MethodGet, c.RM()+"/ws/v1/cluster"+resource, "", into)
}

// set changes one.
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
	var answer struct {
		Nodes struct {
			Node []NodeState `json:"node"`
		} `json:"nodes"`
	}
	if err := c.get(ctx, "/nodes", &answer); err != nil {
		return nil, err
	}
	nodes := answer.Nodes.Node
	slices.SortFunc(nodes, func(a, b NodeState) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// AwaitNodes waits until the named nodes are RUNNING. It fails when a daemon of the
// cluster ends meanwhile.
func (c *Cluster) AwaitNodes(ctx context.Context, names ...string) error {
	return c.await(ctx, fmt.Sprintf("nodes %v are not all RUNNING", names), func() bool {
		nodes, err := c.States(ctx)
		missing := slices.Clone(names)
		for _, n := range nodes {
			if n.State == "RUNNING" {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == n.Name })
			}
		}
		return err == nil && len(missing) == 0
	})
}

// Offer has every node offer so much from now on, and waits until the scheduler sees it.
// Containers that a node then holds too many of run on.
func (c *Cluster) Offer(ctx context.Context, vcores, mb int) error {
	body := fmt.Sprintf(`{"resource":{"memory":%d,"vCores":%d},"overCommitTimeout":-1}`, mb, vcores)
	var failed error
	err := c.await(ctx, fmt.Sprintf("the nodes do not offer %d vcores and %d MiB each", vcores, mb), func() bool {
		nodes, err := c.States(ctx)
		failed = err
		asked := false
		for _, n := range nodes {
			if !n.offers(vcores, mb) {
				asked = true
				failed = errors.Join(failed, c.set(ctx, http.MethodPost, "/nodes/"+n.ID+"/resource", body))
			}
		}
		return err == nil && !asked
	})
	if err != nil {
		err = errors.Join(err, failed)
	}
	return err
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
	var answer struct {
		App application `json:"app"`
	}
	err := c.get(ctx, "/apps/"+id, &answer)
	return answer.App, err
}

// tagged is the application that carries a tag.
func (c *Cluster) tagged(ctx context.Context, tag string) (application, error) {
	var answer struct {
		Apps *struct {
			App []application `json:"app"`
		} `json:"apps"`
	}
	if err := c.get(ctx, "/apps?applicationTags="+tag, &answer); err != nil {
		return application{}, err
	}
	if answer.Apps == nil || len(answer.Apps.App) == 0 {
		return application{}, fmt.Errorf("%w: application with the tag %s", errNotFound, tag)
	}
	return answer.Apps.App[0], nil
}

// attempt is the ResourceManager's state of one life of an application's master.
type attempt struct {
	ID        int    `json:"id"`
	Container string `json:"containerId"`
	Node      string `json:"nodeId"`
}

// attempt is the newest of an application's attempts that has a container.
func (c *Cluster) attempt(ctx context.Context, application string) (attempt, error) {
	var answer struct {
		Attempts struct {
			Attempt []attempt `json:"appAttempt"`
		} `json:"appAttempts"`
	}
	if err := c.get(ctx, "/apps/"+application+"/appattempts", &answer); err != nil {
		return attempt{}, err
	}
	var newest attempt
	for _, a := range answer.Attempts.Attempt {
		if a.ID > newest.ID && a.Container != "" {
			newest = a
		}
	}
	if newest.ID == 0 {
		return attempt{}, fmt.Errorf("%w: application %s has no master yet", errNotFound, application)
	}
	return newest, nil
}

// QueueUse is what a queue uses now.
type QueueUse struct {
	// Name is the queue's full name, such as root.q1.
	Name string `json:"queueName"`
	// Used is in use now.
	Used Resources `json:"usedResources"`
	// Max is the bound that is in force.
	Max Resources `json:"maxResources"`
}

// Resources are an amount of memory and of virtual cores.
type Resources struct {
	// MemoryMB is in MiB, as YARN counts.
	MemoryMB int64 `json:"memory"`
	// VCores counts virtual cores.
	VCores int64 `json:"vCores"`
}

// QueueUses are the queues below root, by name, as the scheduler sees them now.
func (c *Cluster) QueueUses(ctx context.Context) ([]QueueUse, error) {
	var answer struct {
		Scheduler struct {
			Info struct {
				Root struct {
					Children struct {
						Queue []QueueUse `json:"queue"`
					} `json:"childQueues"`
				} `json:"rootQueue"`
				// Queues are those of the capacity scheduler.
				Queues struct {
					Queue []struct {
						Path string    `json:"queuePath"`
						Used Resources `json:"resourcesUsed"`
						Max  Resources `json:"maxEffectiveCapacity"`
					} `json:"queue"`
				} `json:"queues"`
			} `json:"schedulerInfo"`
		} `json:"scheduler"`
	}
	err := c.get(ctx, "/scheduler", &answer)
	queues := answer.Scheduler.Info.Root.Children.Queue
	for _, q := range answer.Scheduler.Info.Queues.Queue {
		queues = append(queues, QueueUse{q.Path, q.Used, q.Max})
	}
	slices.SortFunc(queues, func(a, b QueueUse) int { return strings.Compare(a.Name, b.Name) })
	return queues, err
}
