package rpc

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// probeStagger is the time after which the next address is tried beside one that has not answered yet, and silence
	// the longest wait for one address while another has answered.
	probeStagger = 100 * time.Millisecond
	silence      = 250 * time.Millisecond
)

// Probe returns once the server at addr answers anything. The connection serves the request that follows.
func (p Peers) Probe(ctx context.Context, addr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL(addr)+"/", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Answering returns the addresses with the first one that answers in front.
func Answering(ctx context.Context, addrs []string, probe func(ctx context.Context, addr string) error) []string {
	p := newProber(ctx, probe)
	defer p.close()
	return p.order(addrs)
}

// prober asks servers beside each other whether they answer. A probe that takes longer than silence goes on, so that a
// server that is only slow is found by the next look.
type prober struct {
	probe   func(ctx context.Context, addr string) error
	ctx     context.Context //nolint:containedctx // of the search that the prober is part of
	cancel  context.CancelFunc
	running sync.WaitGroup
	begun   map[string]bool
	ended   map[string]error // nil if it answered
	results chan probed
	alive   bool // a server has answered
}

type probed struct {
	addr string
	err  error
}

func newProber(ctx context.Context, probe func(ctx context.Context, addr string) error) *prober {
	ctx, cancel := context.WithCancel(ctx)
	return &prober{probe: probe, ctx: ctx, cancel: cancel, begun: map[string]bool{}, ended: map[string]error{}, results: make(chan probed)}
}

// close ends the probes.
func (p *prober) close() {
	p.cancel()
	p.running.Wait()
}

// start begins a probe of an address, once.
func (p *prober) start(addr string) {
	if p.begun[addr] {
		return
	}
	p.begun[addr] = true
	p.running.Go(func() {
		err := p.probe(p.ctx, addr)
		select {
		case p.results <- probed{addr, err}:
		case <-p.ctx.Done():
		}
	})
}

// await takes results in until it has what is waited for, at most so long.
func (p *prober) await(wait time.Duration, has func() bool) bool {
	end := time.NewTimer(wait)
	defer end.Stop()
	for !has() {
		select {
		case r := <-p.results:
			p.ended[r.addr] = r.err
		case <-end.C:
			return false
		case <-p.ctx.Done():
			return false
		}
	}
	return true
}

// answered returns the first of the addresses that has answered, "" if none has.
func (p *prober) answered(addrs []string) string {
	for _, addr := range addrs {
		if err, ended := p.ended[addr]; ended && err == nil {
			return addr
		}
	}
	return ""
}

// order returns the addresses with the first one that answers in front.
func (p *prober) order(addrs []string) []string {
	if p.probe == nil || len(addrs) < 2 {
		return addrs
	}
	for i, addr := range addrs {
		p.start(addr)
		begun := addrs[:i+1]
		p.await(probeStagger, func() bool {
			return p.answered(begun) != "" || !slices.ContainsFunc(begun, func(a string) bool { _, ended := p.ended[a]; return !ended })
		})
		if at := p.answered(begun); at != "" {
			p.alive = true
			rest := slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == at })
			return append([]string{at}, rest...)
		}
	}
	return addrs
}

// silent returns an error if the server at addr does not answer for a moment although another has.
func (p *prober) silent(addr string) error {
	if p.probe == nil || !p.alive {
		return nil
	}
	p.start(addr)
	if p.await(silence, func() bool { _, ended := p.ended[addr]; return ended }) {
		return nil
	}
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ETIMEDOUT}
}
