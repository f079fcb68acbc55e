package masters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
	"headroom/lab/dispatch/eagle"
	"headroom/lab/traces"
)

// outgoing is a message to a monitor or to a distributor. A monitor's to itself starts a task on its worker.
type outgoing struct {
	to int
	message
}

// self is where a monitor sends what its own worker starts.
const self = -1

// message is what distributors and node monitors exchange, as JSON.
type message struct {
	// Kind is the type of the message, which determines the fields in use.
	Kind kind
	// Node is the monitor that sends or receives, Hub the distributor, both from 0.
	Node, Hub int
	// Job is a job's number, Task a task of it, Length the time that it sleeps, Mean that of the job's tasks, s.
	Job, Task    int
	Length, Mean float64
	// Lengths are those of all tasks of a job that is submitted.
	Lengths []float64 `json:",omitempty"`
	// View has the monitors with tasks of long jobs; a probe for a long job has one. Round counts how often a probe was refused.
	View  *eagle.View `json:",omitempty"`
	Round int

	// at is when it was received, s since the system began.
	at float64
}

type kind uint8

const (
	submit kind = iota + 1 // of a job, to a distributor
	probe                  // to a monitor: one of a job's tasks may run there
	ask                    // to a distributor: the next task of a job
	give                   // to a monitor: a task
	empty                  // to a monitor: the job has no task left
	ended                  // to a distributor: a task
	refuse                 // to a distributor: a probe
)

// parties are the distributors and node monitors of a system that probes. Each has a goroutine that owns its pure part,
// and takes one message after the other. Each monitor has a connection to each distributor, as on other machines.
type parties struct {
	*plant

	served *slots
	// hubBox and nodeBox are the inboxes, links the connections of each distributor by node, and of each node by distributor.
	hubBox, nodeBox     []chan message
	hubLinks, nodeLinks [][]*json.Encoder
	// central is the distributor that takes long jobs, or none.
	central int

	began time.Time
	// alive ends with the first error that breaks the system, which fail takes, or with close.
	alive   context.Context //nolint:containedctx // the life of the system, which many goroutines watch
	fail    context.CancelCauseFunc
	running sync.WaitGroup

	mu   sync.Mutex
	jobs map[int]*flight
}

// flight is a job that was submitted and has not ended.
type flight struct {
	left int
	done chan struct{}
}

// boxRoom bounds the messages that may wait for a party: more than all probes of the largest job.
const boxRoom = 1 << 14

// post never blocks: a party that does not read ends the run.
func (s *parties) post(box chan<- message, m message) {
	select {
	case box <- m:
	default:
		s.fail(errors.New("masters: a party does not read its messages"))
	}
}

// startParties starts a monitor with a worker for each node, and the distributors, with the central one if there is one.
func startParties(ctx context.Context, p *plant, seed uint64, central int) (system, error) {
	s := &parties{plant: p, central: central, began: time.Now(), jobs: map[int]*flight{}}
	s.alive, s.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	err := s.begin(seed)
	if err == nil {
		err = await(ctx, "workers are not ready", func() (bool, error) { return s.served.connected() == p.Workers(), context.Cause(s.alive) })
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *parties) begin(seed uint64) (err error) {
	if s.served, err = serveSlots(s.taskEnded); err != nil {
		return err
	}
	for range s.Workers() {
		s.nodeBox = append(s.nodeBox, make(chan message, boxRoom))
	}
	s.nodeLinks = make([][]*json.Encoder, s.Workers())
	for i := range max(s.Distributors, s.central+1) {
		s.hubBox = append(s.hubBox, make(chan message, boxRoom))
		if err := s.connect(i); err != nil {
			return err
		}
		h := &hub{jobs: map[int]*heldJob{}, prober: eagle.NewProber(rand.New(rand.NewPCG(seed, uint64(i))), s.Workers(), s.short())}
		if i == s.central {
			h.central = eagle.NewCentral(s.Workers(), s.short())
		}
		s.own(s.hubBox[i], h.hear, func(o outgoing) error {
			o.Hub = i
			return s.hubLinks[i][o.to].Encode(o.message)
		})
	}
	for i := range s.Workers() {
		m := &monitor{node: eagle.NewNode[asked](false, false, nil)}
		s.own(s.nodeBox[i], m.hear, func(o outgoing) error {
			if o.to == self {
				s.served.start(s.nodes[i], s.task(strconv.Itoa(o.Job), o.Task, o.Length))
				return nil
			}
			o.Node = i
			return s.nodeLinks[i][o.to].Encode(o.message)
		})
		if err := s.startWorker(s.nodes[i], s.served.address); err != nil {
			return err
		}
	}
	return nil
}

// connect opens a connection of each monitor to a distributor.
func (s *parties) connect(hub int) error {
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	s.hubLinks = append(s.hubLinks, nil)
	for node := range s.nodeLinks {
		c, err := (&net.Dialer{}).DialContext(s.alive, "tcp", l.Addr().String())
		if err != nil {
			return fmt.Errorf("masters: node monitor %d: %w", node, err)
		}
		s.read(c, s.nodeBox[node])
		s.nodeLinks[node] = append(s.nodeLinks[node], json.NewEncoder(c))
		d, err := l.Accept()
		if err != nil {
			return fmt.Errorf("masters: distributor %d: %w", hub, err)
		}
		s.read(d, s.hubBox[hub])
		s.hubLinks[hub] = append(s.hubLinks[hub], json.NewEncoder(d))
	}
	return nil
}

// read passes a connection's messages on until the system ends, and closes it then.
func (s *parties) read(c net.Conn, box chan<- message) {
	context.AfterFunc(s.alive, func() { _ = c.Close() })
	s.running.Go(func() {
		in := json.NewDecoder(c)
		for {
			var m message
			if err := in.Decode(&m); err != nil {
				s.fail(fmt.Errorf("masters: connection: %w", err))
				return
			}
			s.post(box, m)
		}
	})
}

// own runs the pure part of a party: hear returns what follows from a message, in order.
func (s *parties) own(box <-chan message, hear func(message) []outgoing, send func(outgoing) error) {
	s.running.Go(func() {
		for {
			select {
			case <-s.alive.Done():
				return
			case m := <-box:
				if m.Kind == ended && m.Hub != self {
					s.count(m.Job)
				}
				m.at = time.Since(s.began).Seconds()
				for _, o := range hear(m) {
					if err := send(o); err != nil {
						s.fail(fmt.Errorf("masters: connection: %w", err))
					}
				}
			}
		}
	})
}

// taskEnded notifies a monitor that its worker's task has ended.
func (s *parties) taskEnded(node string, r *headroomv1.TaskResult) {
	job, err := strconv.Atoi(r.GetRef().GetJob())
	at, bad := strconv.Atoi(node[1:]) // as newPlant names them
	if err := errors.Join(failed(r), err, bad); err != nil {
		s.fail(err)
		return
	}
	s.post(s.nodeBox[at], message{Kind: ended, Node: at, Hub: self, Job: job, Task: int(r.GetRef().GetIndex())})
}

func (s *parties) count(job int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.jobs[job]; f != nil {
		if f.left--; f.left == 0 {
			delete(s.jobs, job)
			close(f.done)
		}
	}
}

func (s *parties) run(ctx context.Context, at, job int, j *traces.Job, long bool) error {
	if long && s.central != none {
		at = s.central
	}
	f := &flight{left: len(j.Times), done: make(chan struct{})}
	s.mu.Lock()
	s.jobs[job] = f
	s.mu.Unlock()
	s.post(s.hubBox[at], message{Kind: submit, Hub: at, Job: job, Lengths: j.Times, Mean: j.Mean})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.alive.Done():
		return context.Cause(s.alive)
	case <-f.done:
		return nil
	}
}

func (s *parties) close() error {
	s.fail(nil)
	err := s.group.Close()
	if s.served != nil {
		s.served.close()
	}
	s.running.Wait()
	return err
}
