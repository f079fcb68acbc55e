package streams

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/lease"
)

const (
	// backoffMin and backoffMax bound the pause before a stream is opened again; a
	// new leader must be found well inside the 10 s of a lease.
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
	// steady is how long a stream must have lived for the next pause to be short.
	steady = 5 * time.Second
	// sendQueue is how many messages wait for a slow stream; later ones are dropped,
	// since a heartbeat that waited is worth nothing.
	sendQueue = 4
	// Most bounds the coordinators that a node keeps streams to beside those that are
	// configured: a cluster has 5 servers, and a few may be leaving.
	Most = 16
	// eventQueue is how many messages of all streams wait for the owner.
	eventQueue = 64
)

// Event is what a stream reports to the owner: it is up, it went down, or it
// brought a message.
type Event struct {
	link *Stream
	up   bool
	Down error
	Msg  *headroomv1.CoordinatorMessage
}

// Stream keeps one stream to one coordinator open. Its fields below the line
// belong to the owner.
type Stream struct {
	Addr   string
	client headroomv1connect.NodeServiceClient
	hello  *headroomv1.Hello
	events chan<- Event
	send   chan *headroomv1.NodeMessage
	cancel context.CancelFunc
	ended  sync.WaitGroup

	up bool
	// proven: a coordinator has answered on it.
	proven bool
	// logged is the last logged state: open, or why it is not.
	logged string
	leads  bool
	Epoch  lease.Epoch
	Name   string // id of the leader, as it named itself
}

// openStream starts keeping a stream to addr.
func openStream(ctx context.Context, peers rpc.Peers, addr string, hello *headroomv1.Hello, events chan<- Event) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	l := &Stream{
		Addr: addr, hello: hello, events: events, cancel: cancel,
		client: headroomv1connect.NewNodeServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...),
		send:   make(chan *headroomv1.NodeMessage, sendQueue),
	}
	l.ended.Go(func() { l.keep(ctx) })
	return l
}

// close ends the stream and waits for it.
func (l *Stream) close() {
	l.cancel()
	l.ended.Wait()
}

// offer queues a message for the stream, or drops it if the stream is behind.
func (l *Stream) offer(m *headroomv1.NodeMessage) {
	select {
	case l.send <- m:
	default:
	}
}

// keep opens the stream again and again until ctx ends.
func (l *Stream) keep(ctx context.Context) {
	var b backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := l.once(ctx)
		l.post(ctx, Event{link: l, Down: err})
		if !rpc.Moved(err) {
			pause.For(ctx, b.next(time.Since(began)))
		}
	}
}

// backoff is the pause before a stream is opened again. It grows while streams
// fail, and half of it is chance: nodes that lost one coordinator together must not
// come back together.
type backoff struct{ longest time.Duration }

// next is the pause after a stream that lived so long.
func (b *backoff) next(lived time.Duration) time.Duration {
	b.longest = min(max(2*b.longest, backoffMin), backoffMax)
	if lived > steady {
		b.longest = backoffMin
	}
	return b.longest/2 + rand.N(b.longest/2)
}

// once is the life of one stream; it returns why it ended.
func (l *Stream) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.drain()
	stream := l.client.Exchange(ctx)
	// net/http watches ctx only once the request's body has ended, so that ending
	// the context alone would leave Receive waiting for ever.
	unwatch := context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })
	defer unwatch()
	hello := &headroomv1.NodeMessage{Message: &headroomv1.NodeMessage_Hello{Hello: l.hello}}
	if err := stream.Send(hello); err != nil {
		return receiveError(stream, err)
	}
	l.post(ctx, Event{link: l, up: true})
	var sender sync.WaitGroup
	sender.Go(func() { l.pump(ctx, stream) })
	defer sender.Wait()
	defer cancel()
	for {
		msg, err := stream.Receive()
		if err != nil {
			return err
		}
		l.post(ctx, Event{link: l, Msg: msg})
	}
}

type exchange = connect.BidiStreamForClient[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]

// receiveError returns why a stream refused a message: the server's own error comes
// with receiving.
func receiveError(stream *exchange, err error) error {
	if _, why := stream.Receive(); why != nil {
		return why
	}
	return err
}

// pump sends what the owner offers.
func (l *Stream) pump(ctx context.Context, stream *exchange) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.send:
			if stream.Send(m) != nil {
				return // Receive returns the reason
			}
		}
	}
}

// drain drops what was offered to an earlier stream.
func (l *Stream) drain() {
	for {
		select {
		case <-l.send:
		default:
			return
		}
	}
}

func (l *Stream) post(ctx context.Context, e Event) {
	select {
	case l.events <- e:
	case <-ctx.Done():
	}
}
