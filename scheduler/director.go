package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/lease"
	"headroom/scheduler/leader"
)

const (
	// progressEvery is the interval of progress reports to the coordinators.
	progressEvery = time.Second
	// directBackoffMin and directBackoffMax bound the wait before the stream is opened again.
	directBackoffMin = 100 * time.Millisecond
	directBackoffMax = time.Second
	// engineLocal is the name of the engine of our own workers at the coordinators.
	engineLocal = "local"
	// directivesMax bounds the directives that wait to be carried out.
	directivesMax = 64
)

type directStream = connect.BidiStreamForClient[headroomv1.SchedulerMessage, headroomv1.DirectorMessage]

// director keeps the scheduler's stream to the leader of the coordinators.
type director struct {
	// id and address identify this scheduler to the coordinators.
	id, address string
	leader      *leader.Client
	inbox       inbox
	engines     *engines
	logger      *slog.Logger
	// soon requests an immediate report.
	soon chan struct{}
	// led notifies the restorer that a coordinator leads, so that the log may have new jobs.
	led chan<- struct{}
}

// run keeps a stream to the leader of the coordinators until ctx ends: it receives directives and sends progress and
// acknowledgements.
func (d *director) run(ctx context.Context) error {
	wait := directBackoffMin
	down := false
	for ctx.Err() == nil {
		address := d.leader.Address()
		led, err := d.follow(ctx, address)
		if ctx.Err() != nil {
			return nil
		}
		if led {
			wait, down = directBackoffMin, false
		}
		if rpc.Moved(err) {
			continue // at the same coordinator, with the renewed certificate
		}
		if !down && err != nil {
			d.logger.Warn("no stream to the leader of the coordinators", slog.String("address", address), slog.Any("error", err))
			down = true
		}
		if err != nil {
			d.leader.Leave(address)
		}
		if !pause.For(ctx, wait) {
			return nil
		}
		wait = min(2*wait, directBackoffMax)
	}
	return nil
}

// follow runs one Direct stream. led is whether the coordinator at the other end led. It returns without an error when
// another one leads.
func (d *director) follow(parent context.Context, address string) (led bool, err error) {
	ctx, cancel := context.WithCancel(parent)
	st := d.leader.Jobs(address).Direct(ctx)
	hello := &headroomv1.SchedulerHello{Id: d.id, Address: d.address, Version: cli.Version}
	if err := st.Send(&headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return false, errors.Join(err, st.CloseResponse())
	}
	inbox, broken := rpc.Inbox(ctx, directivesMax, st.Receive)
	defer func() {
		cancel()
		_ = st.CloseRequest()
		_ = st.CloseResponse()
		for range inbox {
			continue // until the receiver has ended
		}
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return led, nil
		case err := <-broken:
			return led, err
		case m := <-inbox:
			if moved, err := d.handle(ctx, st, m, address); moved || err != nil {
				return led, rpc.Reason(err, inbox, broken)
			}
			led = led || m.GetLeader().GetSelf()
		case <-tick.C:
			err = d.report(ctx, st)
		case <-d.soon:
			err = d.report(ctx, st)
		}
		if err != nil {
			return led, rpc.Reason(err, inbox, broken)
		}
	}
}

// handle handles one message; moved is whether another coordinator leads.
func (d *director) handle(ctx context.Context, st *directStream, m *headroomv1.DirectorMessage, address string) (moved bool, err error) {
	switch m := m.GetMessage().(type) {
	case *headroomv1.DirectorMessage_Leader:
		return d.leads(m.Leader, address)
	case *headroomv1.DirectorMessage_Directive:
		return false, d.obey(ctx, st, m.Directive)
	default:
		return false, nil
	}
}

// leads records the leader.
func (d *director) leads(l *headroomv1.Leader, address string) (moved bool, err error) {
	switch {
	case l.GetSelf():
		d.leader.Follow(address)
		d.logger.Info("connected to the leader of the coordinators", slog.String("leader", l.GetId()), slog.String("address", address))
		wake(d.led)
		return false, nil
	case l.GetAddress() == "":
		return true, errNoLeader
	case l.GetAddress() == address:
		return false, nil // it does not know yet that it was elected, or names itself
	default:
		d.leader.Follow(l.GetAddress())
		return true, nil
	}
}

// obey carries out one directive and acknowledges it.
func (d *director) obey(ctx context.Context, st *directStream, m *headroomv1.Directive) error {
	reply := make(chan error, 1)
	e := directiveEvent{stamp: lease.Stamp{Epoch: wire.Epoch(m.GetEpoch()), Seq: m.GetSeq()}, sprint: m.GetSprint(), deflate: m.GetDeflate(), reason: m.GetReason(), reply: reply}
	if s := m.GetShare(); s.GetEngine() == engineLocal {
		e.shares = s
	}
	if d.engines.ofYarn(m.GetDeflate().GetId()) {
		e.deflate = nil // the loop has no such run
	}
	if c := m.GetCap(); c != nil {
		e.node, e.cap = c.GetNode(), capFromProto(c)
	}
	refused, err := ask(ctx, d.inbox, e, reply)
	if err != nil {
		return err
	}
	if refused == nil {
		refused = d.engines.carryOut(m)
	}
	ack := &headroomv1.DirectiveAck{Epoch: m.GetEpoch(), Seq: m.GetSeq()}
	if refused != nil {
		ack.Error = refused.Error()
	}
	return st.Send(&headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Ack{Ack: ack}})
}

// report sends the progress of all unfinished jobs.
func (d *director) report(ctx context.Context, st *directStream) error {
	reply := make(chan view, 1)
	v, err := ask(ctx, d.inbox, viewEvent{live: true, reply: reply}, reply)
	if err != nil {
		return err
	}
	r := &headroomv1.ProgressReport{Discipline: v.dispatch.GetDiscipline(), Classes: v.dispatch.GetClasses()}
	for _, j := range v.jobs {
		r.Jobs = append(r.Jobs, progressToProto(j))
	}
	if v.capacity > 0 {
		r.Engines = append(r.Engines, &headroomv1.EngineReport{Engine: engineLocal, Containers: count(v.capacity)})
	}
	if d.engines.spark != nil {
		r.Engines = append(r.Engines, d.engines.reportSpark())
	}
	if d.engines.yarn != nil {
		jobs, engine := d.engines.yarn.Report(v.dispatch.GetClasses())
		r.Jobs, r.Engines = append(r.Jobs, jobs...), append(r.Engines, engine)
	}
	return st.Send(&headroomv1.SchedulerMessage{Message: &headroomv1.SchedulerMessage_Progress{Progress: r}})
}
