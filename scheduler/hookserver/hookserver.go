// Package hookserver answers the hooks that run inside engines: small JSON over HTTP, with limits on everything that
// a hook may use.
//
// The one idea: a hook without an answer in time runs all tasks, so a request that cannot be answered soon is refused
// at once instead of being kept waiting.
//
// Guarantees:
//   - the number of concurrent requests is bounded, as is that of one user's;
//   - who asks is known before the body is read, as far as the token says so;
//   - none is longer than BodyMax or takes longer than Wait;
//   - every refusal is JSON with its reason.
//
// Each engine has its own requests and answers: docs/hooks.md.
package hookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"headroom/internal/listen"
)

const (
	// Wait bounds the answer to a hook, which gives up after 2 s.
	Wait = 1800 * time.Millisecond
	// BodyMax bounds the body of a request, in bytes.
	BodyMax = 1 << 20
	// endWait bounds the shutdown of the server.
	endWait = time.Second
	// wordsMax bounds the reason of a refusal, in bytes.
	wordsMax = 1000
)

// Serve answers on l until ctx ends. Then it returns nil, and otherwise why it cannot serve.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: Wait, ReadTimeout: 2 * Wait, WriteTimeout: 2 * Wait, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ConnContext: listen.With,
	}
	over := make(chan struct{})
	var failed error
	go func() {
		defer close(over)
		failed = s.Serve(l)
	}()
	select {
	case <-over:
		return fmt.Errorf("serve hooks: %w", failed)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	if s.Shutdown(last) != nil {
		_ = s.Close() // pending requests fail, and their hooks run all tasks
	}
	<-over
	return nil
}

// Places bounds the requests that are answered at one time. Nobody has a place before it is known who asks.
type Places struct {
	most int

	mu  sync.Mutex
	all int
	of  map[string]int // by name
}

// NewPlaces returns so many places.
func NewPlaces(most int) *Places { return &Places{most: most, of: map[string]int{}} }

// part is the part of the places that are kept for guests who come first, and that which a name has whatever the others do.
const part = 8

// enter takes a place. A name has its part, and more while half of all places are free. One without a name has no part.
func (p *Places) enter(who listen.Guest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch own := p.of[who.Name]; {
	case p.all >= p.most, !who.First && p.all >= p.most-p.most/part, who.Name != "" && own >= max(1, p.most/part) && p.all >= p.most/2:
		return false
	default:
		p.all++
		p.of[who.Name]++
		return true
	}
}

func (p *Places) leave(who listen.Guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[who.Name]--; p.of[who.Name] == 0 {
		delete(p.of, who.Name)
	}
}

// Serve answers a request of who in one of the places, for at most Wait and BodyMax bytes. Without a place it refuses at once.
func (p *Places) Serve(w http.ResponseWriter, r *http.Request, who listen.Guest, next http.HandlerFunc) {
	if !p.enter(who) {
		w.Header().Set("Retry-After", "1")
		Refuse(w, http.StatusServiceUnavailable, fmt.Errorf("too many requests: %d places in all, an eighth of them for each user", p.most))
		return
	}
	defer p.leave(who)
	ctx, cancel := context.WithTimeout(r.Context(), Wait)
	defer cancel()
	r.Body = http.MaxBytesReader(w, r.Body, BodyMax)
	next(w, r.WithContext(ctx))
}

// Answer writes v as JSON.
func Answer(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		Refuse(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // a hook that is gone runs all tasks
}

// Refuse writes {"error": why}.
func Refuse(w http.ResponseWriter, code int, why error) {
	words := strings.ToValidUTF8(strings.Join(strings.Fields(why.Error()), " "), "?")
	if len(words) > wordsMax {
		words = strings.ToValidUTF8(words[:wordsMax], "") + "..."
	}
	data, err := json.Marshal(map[string]string{"error": words})
	if err != nil {
		data = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}
