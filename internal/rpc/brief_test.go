// Claims: a server for strangers drops whoever sends or reads too slowly, holds no
// more connections than it may, and serves the next one as if nothing had been.

package rpc_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/rpc"
)

// pipes is a listener whose connections live in memory, so that a bubble's clock
// is theirs.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

const (
	briefWait    = 10 * time.Second
	briefClients = 3
)

// serveBriefly reads the request and answers what no buffer holds, until stop.
func serveBriefly(t *testing.T) (p *pipes, body []byte, stop func()) {
	t.Helper()
	p, body = newPipes(), bytes.Repeat([]byte("headroom "), 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- rpc.ServeBriefly(ctx, p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				_, _ = w.Write(body)
			}
		}), briefWait, briefClients)
	}()
	return p, body, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

const request = "GET / HTTP/1.1\r\nHost: n03\r\n\r\n"

// answered asks and reads the whole answer; the connection ends with it.
func answered(t *testing.T, c net.Conn, body []byte) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Error(err)
		return
	}
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	got, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(got, body) || !res.Close {
		t.Errorf("%d bytes of %d, %v; closes: %v", len(got), len(body), err, res.Close)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection stays open: %v", err)
	}
}

func TestServeBrieflyDropsTheSlow(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]string{
		"says nothing":           "",
		"never ends its headers": "GET / HTTP/1.1\r\nHost: n03\r\n",
		"never ends its body":    "GET / HTTP/1.1\r\nHost: n03\r\nContent-Length: 100000\r\n\r\nx",
		"never reads":            request,
		"speaks HTTP/2":          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, body, stop := serveBriefly(t)
				defer stop()
				c, began := p.dial(), time.Now()
				go func() { _, _ = io.WriteString(c, send) }()
				time.Sleep(2 * briefWait) // reads nothing meanwhile
				synctest.Wait()
				if _, err := c.Write([]byte("x")); err == nil {
					t.Errorf("still held after %v", time.Since(began))
				}
				_ = c.Close()
				answered(t, p.dial(), body)
			})
		})
	}
}

func TestServeBrieflyBoundsConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, body, stop := serveBriefly(t)
		defer stop()
		held := make([]net.Conn, 0, briefClients)
		for range briefClients {
			held = append(held, p.dial())
		}
		synctest.Wait()
		tooMany, began := p.dial(), time.Now()
		if _, err := tooMany.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != 0 {
			t.Errorf("one too many is held for %v: %v", time.Since(began), err)
		}
		_ = tooMany.Close()
		_ = held[0].Close()
		synctest.Wait()
		answered(t, p.dial(), body)
		for _, c := range held {
			_ = c.Close()
		}
	})
}
