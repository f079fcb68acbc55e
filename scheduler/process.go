package scheduler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/oklog/run"

	"headroom/internal/rpc"
	"headroom/scheduler/leader"
	"headroom/scheduler/spark"
)

// process is a scheduler's process: the active one while it holds the lease, a standby otherwise.
type process struct {
	cfg     Config
	id      identity
	own     edge
	gateway *gateway
	leases  *leases
	logger  *slog.Logger
	// acting is the present tenure's server; nil on standby.
	acting atomic.Pointer[Server]
}

// Run serves on l until ctx ends. It returns nil after a regular stop; jobs resume when a scheduler is started again on
// the same folder or a new one, or on another machine.
func Run(ctx context.Context, cfg Config, l net.Listener, logger *slog.Logger) error {
	id, release, err := claim(cfg.Dir)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	own, err := openEdge(cfg, l, logger)
	if err != nil {
		return errors.Join(err, release(), l.Close())
	}
	defer own.peers.Close()
	p := &process{cfg: cfg, id: id, own: own, gateway: newGateway(own.guard), logger: logger}
	s, err := p.server() // a standby, too, refuses at its start what it could not run with
	if err != nil {
		return errors.Join(err, release(), closeAll(own.ports))
	}
	p.leases = newLeases(id, cfg.Dir, p.address(), s.prover.key, leader.New(cfg.Coordinators, own.peers), p.gateway, logger)
	if cfg.Spark.On() {
		p.leases.another = func() {
			if n := spark.EndRuns(s.folders.spark); n > 0 {
				logger.Info("ending drivers of this scheduler; the active one runs their jobs", slog.Int("drivers", n))
			}
		}
	}
	logger.Info("scheduler started", slog.String("id", id.ID), slog.Any("run", id.Run), slog.String("address", p.address()))
	return errors.Join(p.serve(ctx, s), release())
}

// address returns where clients and workers reach this scheduler.
func (p *process) address() string { return cmp.Or(p.cfg.Advertise, p.own.ports[0].Addr().String()) }

// server returns the server of a tenure that has not begun, with its engines' ports open.
func (p *process) server() (*Server, error) {
	return newServer(p.cfg, p.id, p.own.ports[0].Addr().String(), p.own, p.logger)
}

// serve runs the parts of the process until one of them ends.
func (p *process) serve(parent context.Context, s *Server) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	parts := []func(context.Context) error{func(ctx context.Context) error { return p.takeTurns(ctx, s) }}
	for _, l := range p.own.ports {
		parts = append(parts, func(ctx context.Context) error { return rpc.Serve(ctx, l, p.gateway) })
	}
	if p.own.denials != nil {
		parts = append(parts, p.own.denials.Watch)
	}
	if p.cfg.Metrics.Listen != "" {
		parts = append(parts, p.serveMetrics)
	}
	var g run.Group
	for _, part := range parts {
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}

// takeTurns acts while this scheduler holds the lease, and stands by otherwise, until ctx ends.
func (p *process) takeTurns(ctx context.Context, s *Server) error {
	for {
		l := p.leases.acquire(ctx, func() { // hooks must find the active scheduler, not a port that nobody answers
			s.close()
			s = nil
		})
		if l == nil {
			s.close()
			return nil
		}
		if err := p.actUnder(ctx, l, s); ctx.Err() != nil || err != nil && !errors.Is(err, errLost) {
			return err
		}
		s = nil
	}
}

// actUnder acts until the lease is lost or ctx ends, then with a server that is not used again.
func (p *process) actUnder(ctx context.Context, l *tenure, s *Server) (err error) {
	defer p.leases.release(ctx, l) // nothing acts any longer
	if s == nil {
		if s, err = p.server(); err != nil {
			return err
		}
	}
	s.begin(l)
	p.acting.Store(s)
	defer p.acting.Store(nil)
	if epoch := l.Epoch(); epoch != 0 {
		p.logger.Info("scheduler is active", slog.Uint64("epoch", epoch))
	} else {
		p.logger.Warn("coordinators of an older version: no lease prevents a second scheduler from running the same jobs")
	}
	return s.act(ctx, p.gateway, func(ctx context.Context) error { return p.leases.keep(ctx, l) })
}
