package distributor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
)

// errSilent is the cause if a master has sent nothing for too long.
var errSilent = errors.New("master timed out")

// errSlow is the cause if a master does not read its stream.
var errSlow = errors.New("master is not reading its stream")

// link is one master: its address, and its latest messages. The loop owns it.
type link struct {
	group   *group
	address string
	// open is the present stream; nil without one.
	open *session
	// name is the master's own name, trouble why there is no stream.
	name, trouble string
}

// session is one stream to a master. The loop writes out; state is the latest state of the master.
type session struct {
	link  *link
	out   chan *headroomv1.PlaceMessage
	state *headroomv1.GroupState
	over  chan struct{}
	once  sync.Once
	cause error
}

// end ends the stream, with a cause.
func (s *session) end(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.over)
	})
}

// keep keeps a stream to a master until ctx ends.
func (d *Distributor) keep(ctx context.Context, l *link) {
	wait := backoffMin
	for ctx.Err() == nil {
		began := time.Now()
		err := d.session(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > backoffMax {
			wait = backoffMin
		}
		if !d.post(ctx, closed{l, err}) || !rpc.Moved(err) && !pause.For(ctx, wait) {
			return
		}
		wait = min(2*wait, backoffMax)
	}
}

type stream = connect.BidiStreamForClient[headroomv1.PlaceMessage, headroomv1.GroupMessage]

// session runs one stream.
func (d *Distributor) session(parent context.Context, l *link) error {
	ctx, cancel := context.WithCancel(parent)
	st := headroomv1connect.NewMasterServiceClient(d.peers.HTTP(), d.peers.URL(l.address), d.peers.Options()...).Place(ctx)
	s := &session{link: l, out: make(chan *headroomv1.PlaceMessage, outboxMax), over: make(chan struct{})}
	hello := &headroomv1.PlaceHello{Distributor: d.cfg.Name, Incarnation: d.cfg.Incarnation, Version: cli.Version}
	if d.cfg.Epoch != nil {
		epoch := d.cfg.Epoch()
		rpc.SetSchedulerEpoch(st.RequestHeader(), epoch)
		hello.Incarnation = cmp.Or(epoch, hello.GetIncarnation())
	}
	if err := st.Send(&headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return errors.Join(err, st.CloseResponse())
	}
	heard := make(chan struct{}, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { s.end(d.receive(ctx, st, s, heard)) })
	err := d.transmit(ctx, st, s, heard)
	cancel()
	_ = st.CloseRequest()
	_ = st.CloseResponse()
	receiver.Wait()
	return err
}

// receive forwards the master's messages to the loop until the stream ends.
func (d *Distributor) receive(ctx context.Context, st *stream, s *session, heard chan<- struct{}) error {
	for {
		m, err := st.Receive()
		if err != nil {
			return err
		}
		select {
		case heard <- struct{}{}:
		default:
		}
		if !d.post(ctx, received{s, m}) {
			return ctx.Err()
		}
	}
}

// transmit sends the loop's messages to the master until the stream ends.
func (d *Distributor) transmit(ctx context.Context, st *stream, s *session, heard <-chan struct{}) error {
	alive, patience := time.NewTicker(aliveEvery), time.NewTimer(silence)
	defer alive.Stop()
	defer patience.Stop()
	for {
		var m *headroomv1.PlaceMessage
		select {
		case <-s.over:
			return s.cause
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return errSilent
		case <-heard:
			patience.Reset(silence)
			continue
		case m = <-s.out:
		case <-alive.C:
			m = &headroomv1.PlaceMessage{Message: &headroomv1.PlaceMessage_Alive{Alive: &headroomv1.PlaceAlive{}}}
		}
		if err := st.Send(m); err != nil && !errors.Is(err, io.EOF) { // for EOF the receiver has the cause
			return err
		} else if err != nil {
			<-s.over
			return s.cause
		}
	}
}

// send sends a message to a master's stream. A master that does not read is disconnected.
func (s *session) send(m *headroomv1.PlaceMessage) {
	select {
	case s.out <- m:
	default:
		s.end(errSlow)
	}
}

// closed is a stream that ended, or could not be opened.
type closed struct {
	link *link
	err  error
}

func (e closed) apply(l *loop, now time.Time) {
	if e.link.trouble == "" && !rpc.Moved(e.err) {
		l.cfg.Logger.Warn("no stream to master", slog.String("group", e.link.group.Name), slog.String("address", e.link.address), slog.Any("error", e.err))
	}
	e.link.trouble = cause(e.err)
	e.link.open = nil
	l.elect(now, e.link.group)
}

// cause returns why a stream ended, in words.
func cause(err error) string {
	if err == nil {
		return "closed by the master"
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e.Message()
	}
	return err.Error()
}
