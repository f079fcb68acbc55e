package yarn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"headroom/scheduler/profiles"
)

// sight is one read of the cluster.
type sight struct {
	// apps are the live applications of our queues, and the requested ended ones.
	apps []app
	// unknown are requested applications that no longer exist.
	unknown []string
	nodes   []node
	// queues are the names of all queues; nil if they were not requested.
	queues map[string]bool
	// details are the answers of the masters of live applications.
	details map[string]detail
}

// detail is a read of one job. What could not be read is nil or unknown.
type detail struct {
	tasks *tasks
	// demand is its owner's demand, and bounds the resulting floors; read only once.
	demand     demand
	bounds     []profiles.Bound
	demandRead bool
	// on counts the running containers by NodeManager, without the master's; nil if unknown.
	on map[string]int
	// master is the size of its master's container; zero if unknown.
	master Container
	// spark is the state of a Spark application; nil otherwise.
	spark *sparkLook
	err   error
}

// wish is what the book requests of the next read.
type wish struct {
	// known are the unfinished applications, as far as known.
	known []string
	// demandRead are those whose conf has been read.
	demandRead map[string]bool
	// spark is about Spark applications.
	spark map[string]sparkWish
	// queues requests the names of the queues.
	queues bool
	// since is the submission of the newest known job: ended applications that came later are listed. Zero for none.
	since time.Time
}

// lookers bounds the concurrent requests: half of the connections that the client opens.
const lookers = 4

// endedMax bounds the ended applications that are listed after an absence.
const endedMax = "1000"

// look reads the ResourceManager and the masters. An error means that the ResourceManager could not be read; an
// unreachable master affects only its own detail.
func (c *client) look(ctx context.Context, cfg Config, w wish) (*sight, error) {
	s := &sight{details: map[string]detail{}}
	live, err := c.list(ctx, "states="+strings.Join(liveStates(), ","))
	if err != nil {
		return nil, err
	}
	if !w.since.IsZero() {
		more, err := c.list(ctx, "states="+strings.Join(endStates(), ",")+"&limit="+endedMax+"&startedTimeBegin="+ms(w.since.Add(time.Millisecond)))
		if err != nil {
			return nil, err
		}
		live = append(live, more...)
	}
	seen := map[string]bool{}
	for _, a := range live {
		if cfg.queue(a.queue) != nil && !seen[a.id] {
			seen[a.id] = true
			s.apps = append(s.apps, a)
		}
	}
	if err := c.lookFor(ctx, w.known, seen, s); err != nil {
		return nil, err
	}
	if err := c.lookAround(ctx, w, s); err != nil {
		return nil, err
	}
	c.lookInside(ctx, w, s)
	return s, nil
}

func (c *client) list(ctx context.Context, query string) ([]app, error) {
	body, err := c.cluster(ctx, "apps?applicationTypes="+typeMapReduce+","+typeSpark+"&"+query)
	if err != nil {
		return nil, err
	}
	return readApps(body)
}

// lookFor reads known applications that are not in the list.
func (c *client) lookFor(ctx context.Context, known []string, seen map[string]bool, s *sight) error {
	for _, id := range known {
		if seen[id] {
			continue
		}
		body, err := c.cluster(ctx, "apps/"+id)
		if errors.Is(err, errNotThere) {
			s.unknown = append(s.unknown, id)
			continue
		}
		if err != nil {
			return err
		}
		a, err := readApp(body)
		if err != nil {
			return err
		}
		s.apps = append(s.apps, a)
	}
	return nil
}

// lookAround reads the nodes and the queues.
func (c *client) lookAround(ctx context.Context, w wish, s *sight) error {
	body, err := c.cluster(ctx, "nodes?states=RUNNING")
	if err != nil {
		return err
	}
	if s.nodes, err = readNodes(body); err != nil || !w.queues {
		return err
	}
	if body, err = c.cluster(ctx, "scheduler"); err != nil {
		return err
	}
	s.queues, err = readQueues(body)
	return err
}

// bind computes the floors of new demands, by the current profiles.
func (s *sight) bind(known *profiles.Folder) {
	for _, a := range s.apps {
		if d := s.details[a.id]; d.demandRead {
			d.bounds = d.demand.bounds(a.name, known)
			s.details[a.id] = d
		}
	}
}

// lookInside reads the masters of all running applications, a few at a time.
func (c *client) lookInside(ctx context.Context, w wish, s *sight) {
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, lookers)
	for _, a := range s.apps {
		if a.state != "RUNNING" {
			continue
		}
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			var d detail
			if a.spark {
				d = c.insideSpark(ctx, a, w.spark[a.id], w.demandRead[a.id])
			} else {
				d = c.inside(ctx, a, w.demandRead[a.id])
			}
			mu.Lock()
			defer mu.Unlock()
			s.details[a.id] = d
		})
	}
	running.Wait()
}

// containers reads the containers of an application; there are none before its first attempt.
func (c *client) containers(ctx context.Context, a app) (held, error) {
	if a.attempt == "" {
		return held{}, nil
	}
	body, err := c.cluster(ctx, "apps/"+a.id+"/appattempts/"+a.attempt+"/containers")
	if err != nil {
		return held{}, err
	}
	return readContainers(body, a.master)
}

func (c *client) inside(ctx context.Context, a app, demandRead bool) (d detail) {
	var h held
	h, d.err = c.containers(ctx, a)
	d.on, d.master = h.on, h.master
	body, err := c.master(ctx, a.id, "/tasks")
	if err == nil {
		var all tasks
		if all, err = readTasks(body); err == nil {
			d.tasks = &all
		}
	}
	if err == nil && !demandRead {
		if body, err = c.master(ctx, a.id, "/conf"); err == nil {
			d.demand, err = readDemand(body)
			if d.demandRead = err == nil; d.demandRead {
				d.demand.tag(a.tags)
			}
		}
	}
	d.err = errors.Join(d.err, err)
	return d
}
