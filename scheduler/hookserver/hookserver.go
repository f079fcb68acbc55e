// Package hookserver answers the hooks that run inside engines: small JSON over HTTP, with limits on everything that a
// hook may use.
// | The one idea: a hook without an answer in time runs all tasks, so a request that cannot be answered soon is refused
// at once instead of being kept waiting.
// | Guarantees: the number of concurrent requests is bounded; none is longer than BodyMax or takes longer than Wait;
// every refusal is JSON with its reason. Each engine has its own requests and answers: docs/hooks.md.
package hookserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
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

// Bounded limits h to most concurrent requests, each of at most Wait and BodyMax bytes.
func Bounded(most int, h http.Handler) http.Handler {
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			Refuse(w, http.StatusServiceUnavailable, fmt.Errorf("too many requests: %d in progress", most))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), Wait)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, BodyMax)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
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
