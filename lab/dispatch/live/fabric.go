package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"headroom/internal/rpc"
)

// procedure is the one call between node monitors and distributors: a stream in both directions.
const procedure = "/headroom.lab.v1.DispatchService/Monitor"

// boxRoom bounds the messages that may wait in an inbox or for a peer: more than all probes of a job with the largest fan-out.
const boxRoom = 1 << 14

// errSlowPeer is a peer, or the owner of an inbox, that does not read its messages.
var errSlowPeer = errors.New("live: message queue of a peer is full")

// message is what distributors and node monitors say to each other. The frame is the production's protobuf, its content JSON:
// these messages are no interface of Headroom.
type message struct {
	// Kind is the type of the message, which determines the fields in use.
	Kind kind
	// Node is the monitor that speaks or is spoken to, Hub the distributor, both from 0. A monitor sets Node in what it
	// sends and Hub in what it receives.
	Node, Hub int
	// Job is a job's number in the trace, Task a task of it, Length the time that it sleeps, Mean that of the job's tasks, s.
	Job, Task    int
	Length, Mean float64
	// Lengths are those of all tasks of a job that is submitted.
	Lengths []float64 `json:",omitempty"`
	// Long is true for a long job.
	Long bool
	// Busy are the monitors that have tasks of long jobs, as the View of this number has them. Round counts how often a probe was refused.
	Busy  []int32 `json:",omitempty"`
	View  uint64
	Round int

	// at is when it was received, s since the system began.
	at float64
}

type kind uint8

const (
	hello  kind = iota
	submit      // of a job, to a distributor
	probe       // to a monitor: one of a job's tasks may run there
	ask         // to a distributor: the next task of a job
	give        // to a monitor: a task
	empty       // to a monitor: the job has no task left
	ended       // to a distributor: a task
	refuse      // to a distributor: a probe
)

// newBox makes an inbox, or one side of a stream: what is put into it arrives in order.
func newBox() chan message { return make(chan message, boxRoom) }

// post never blocks: who does not read ends the run.
func post(box chan<- message, m message) error {
	select {
	case box <- m:
		return nil
	default:
		return errSlowPeer
	}
}

// encoded is a message as it goes over the wire.
func encoded(m message) (*wrapperspb.BytesValue, error) {
	text, err := json.Marshal(m)
	return wrapperspb.Bytes(text), err
}

func decoded(b *wrapperspb.BytesValue) (m message, err error) {
	err = json.Unmarshal(b.GetValue(), &m)
	return m, err
}

// stream is what both sides of a call have.
type stream interface {
	Send(*wrapperspb.BytesValue) error
	Receive() (*wrapperspb.BytesValue, error)
}

// carry passes messages on in both directions until the stream or ctx ends.
func carry(ctx context.Context, st stream, out <-chan message, heard func(message) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, broken := rpc.Inbox(ctx, boxRoom, st.Receive)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case m := <-out:
			b, err := encoded(m)
			if err == nil {
				err = st.Send(b)
			}
			if err != nil {
				return err
			}
		case b, more := <-in:
			if !more {
				return <-broken
			}
			m, err := decoded(b)
			if err == nil {
				err = heard(m)
			}
			if err != nil {
				return err
			}
		}
	}
}

// hub is a distributor's side: a server to which every monitor opens a stream.
type hub struct {
	address string
	heard   func(message) error

	mu    sync.Mutex
	links map[int]chan<- message
}

// serveHub serves on a free loopback port until ctx ends; running has what is to be awaited then.
func serveHub(ctx context.Context, running *sync.WaitGroup, heard func(message) error) (*hub, error) {
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &hub{address: l.Addr().String(), heard: heard, links: map[int]chan<- message{}}
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewBidiStreamHandler(procedure, h.serve, rpc.HandlerOptions()...))
	srv := &http.Server{Handler: mux, Protocols: cleartext(), ReadHeaderTimeout: startPatience}
	running.Go(func() { _ = srv.Serve(l) })
	running.Go(func() {
		<-ctx.Done()
		_ = srv.Close()
	})
	return h, nil
}

// newClient is a client of one monitor. Other than the production's, neither side looks by pings whether the other one lives: they
// are the same process, and on a machine with much to do a late ping would end the run.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{Protocols: cleartext()}}
}

// cleartext is HTTP/2 without certificates.
func cleartext() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

func (h *hub) serve(ctx context.Context, st *connect.BidiStream[wrapperspb.BytesValue, wrapperspb.BytesValue]) error {
	first, err := st.Receive()
	if err != nil {
		return err
	}
	m, err := decoded(first)
	if err != nil || m.Kind != hello {
		return fmt.Errorf("live: a stream begins with kind %d: %w", m.Kind, err)
	}
	out := newBox()
	h.mu.Lock()
	h.links[m.Node] = out
	h.mu.Unlock()
	return carry(ctx, st, out, h.heard)
}

// send sends a message to a monitor.
func (h *hub) send(node int, m message) error {
	h.mu.Lock()
	out := h.links[node]
	h.mu.Unlock()
	if out == nil {
		return fmt.Errorf("live: no stream of node monitor %d", node)
	}
	return post(out, m)
}

// connected is how many monitors there are.
func (h *hub) connected() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.links)
}

// join opens a monitor's stream to a hub. Each monitor has connections of its own, as one on another machine would.
func join(ctx context.Context, running *sync.WaitGroup, client connect.HTTPClient, address string, node int, heard func(message) error, broken func(error)) (chan<- message, error) {
	st := connect.NewClient[wrapperspb.BytesValue, wrapperspb.BytesValue](client, rpc.BaseURL(address)+procedure, rpc.ClientOptions()...).CallBidiStream(ctx)
	b, err := encoded(message{Kind: hello, Node: node})
	if err == nil {
		err = st.Send(b)
	}
	if err != nil {
		return nil, fmt.Errorf("live: node monitor %d: %w", node, err)
	}
	out := newBox()
	running.Go(func() {
		err := carry(ctx, st, out, heard)
		_ = st.CloseRequest()
		_ = st.CloseResponse()
		if ctx.Err() == nil {
			broken(err)
		}
	})
	return out, nil
}
