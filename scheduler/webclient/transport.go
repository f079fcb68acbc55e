package webclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// lookEvery is how often the files are looked at, at most.
	lookEvery = 10 * time.Second
	// connectionsMax bounds the connections to one server.
	connectionsMax = 8
	// session is the cookie of Hadoop's filters: it stands for a ticket that was accepted.
	session = "hadoop.auth"
	// sessionMax bounds that cookie, in bytes; real ones have some 200.
	sessionMax = 4096
	// drainMax bounds what is read of a refusal before the connection is used again.
	drainMax = 64 << 10
)

// Transport carries requests to an engine's web services. It is safe for concurrent use.
type Transport struct {
	cfg     Config
	logger  *slog.Logger
	tickets *tickets // nil without Kerberos

	mu     sync.Mutex
	base   *http.Transport // nil while the files have never been readable
	looked time.Time
	stamps [3]time.Time
	why    error // the files cannot be used as they are now
	// sessions are the cookies by host:port.
	sessions map[string]*http.Cookie
}

// New returns a transport. Files that cannot be read are an error of each request until they
// can be.
func New(cfg Config, logger *slog.Logger) *Transport {
	t := &Transport{cfg: cfg, logger: logger, sessions: map[string]*http.Cookie{}}
	if cfg.Kerberos.On() {
		t.tickets = newTickets(cfg.Kerberos)
	}
	return t
}

// CloseIdleConnections closes what is open and not in use.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != nil {
		t.base.CloseIdleConnections()
	}
}

// RoundTrip carries out one request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, err := t.current(time.Now())
	if err != nil {
		return nil, err
	}
	if t.tickets == nil {
		return base.RoundTrip(r)
	}
	if c := t.session(r.URL.Host); c != nil {
		again := r.Clone(r.Context())
		again.AddCookie(c) // name and value only
		resp, err := base.RoundTrip(again)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			return resp, err
		}
		t.keep(r.URL.Host, nil) // it has expired, or the server is another one
		if r.Body != nil && r.Body != http.NoBody {
			if r.GetBody == nil {
				return resp, nil // the body is spent
			}
			body, err := r.GetBody()
			if err != nil {
				return resp, nil //nolint:nilerr // the refusal is the answer
			}
			r = r.Clone(r.Context())
			r.Body = body
		}
		_, _ = io.CopyN(io.Discard, resp.Body, drainMax)
		_ = resp.Body.Close()
	}
	return t.negotiate(base, r)
}

// negotiate sends a ticket and keeps the session that the server returns.
func (t *Transport) negotiate(base *http.Transport, r *http.Request) (*http.Response, error) {
	service := "HTTP/" + r.URL.Hostname()
	header, err := t.tickets.header(r.Context(), service)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	shown := r.Clone(r.Context())
	shown.Header.Set("Authorization", header)
	resp, err := base.RoundTrip(shown)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		t.tickets.refused(service, time.Now()) // its key may have changed
		return resp, nil
	}
	for _, c := range resp.Cookies() {
		if c.Name == session && c.Value != "" && len(c.Value) <= sessionMax {
			t.keep(r.URL.Host, c)
		}
	}
	return resp, nil
}

func (t *Transport) session(host string) *http.Cookie {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[host]
}

func (t *Transport) keep(host string, c *http.Cookie) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c == nil {
		delete(t.sessions, host)
		return
	}
	t.sessions[host] = c
}

// current returns the transport by the files as they are. Files that cannot be read leave the
// last good ones in force.
func (t *Transport) current(now time.Time) (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.base != nil && now.Sub(t.looked) < lookEvery {
		return t.base, nil
	}
	t.looked = now
	stamps := t.modified()
	if t.base != nil && stamps == t.stamps && t.why == nil {
		return t.base, nil
	}
	secured, err := t.cfg.tls()
	switch {
	case err != nil && t.base == nil:
		return nil, fmt.Errorf("%s: %w", t.cfg.Section, err)
	case err != nil && t.why == nil:
		t.logger.Warn("client certificates of an engine unreadable; keeping the last valid ones", slog.String("section", t.cfg.Section), slog.Any("error", err))
	}
	if t.why = err; err != nil {
		return t.base, nil
	}
	if t.base != nil {
		t.logger.Info("client certificates of an engine reloaded", slog.String("section", t.cfg.Section))
		t.base.CloseIdleConnections()
	}
	t.stamps = stamps
	t.base = &http.Transport{
		MaxConnsPerHost: connectionsMax, MaxIdleConnsPerHost: connectionsMax, IdleConnTimeout: time.Minute, Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: secured,
	}
	return t.base, nil
}

func (t *Transport) modified() (out [3]time.Time) {
	for i, name := range []string{t.cfg.CA, t.cfg.Certificate, t.cfg.Key} {
		if info, err := os.Stat(name); name != "" && err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

// tls returns who is trusted and what is shown.
func (c Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		roots, err := c.roots()
		if err != nil {
			return nil, err
		}
		out.RootCAs = roots
	}
	if c.Certificate != "" {
		own, err := c.own()
		if err != nil {
			return nil, err
		}
		out.Certificates = []tls.Certificate{own}
	}
	return out, nil
}

// waited returns why a request stopped waiting.
func waited(ctx context.Context, realm string) error {
	return fmt.Errorf("no answer of a KDC of %s yet: %w", realm, ctx.Err())
}
