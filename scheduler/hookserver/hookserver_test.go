package hookserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"headroom/internal/listen"
	"headroom/internal/testkit"
)

// Beyond the bound a request is refused at once, and answered again when a place is free.
func TestBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	places := NewPlaces(1)
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-leave
		}
		Answer(w, map[string]int{"n": 1})
	}
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		places.Serve(w, httptest.NewRequest(http.MethodGet, path, http.NoBody), listen.Guest{}, h)
		return w
	}
	over := make(chan struct{})
	go func() { ask("/slow"); close(over) }()
	<-entered
	if w := ask("/"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "1 places in all") {
		t.Fatalf("a second request: %d %s", w.Code, w.Body)
	}
	close(leave)
	<-over
	if w := ask("/"); w.Code != http.StatusOK || w.Body.String() != "{\"n\":1}\n" {
		t.Fatalf("after the first: %d %s", w.Code, w.Body)
	}
}

// One name fills half of the places and no more than its part of the rest; some are kept for who comes first.
func TestPlacesOfNames(t *testing.T) {
	t.Parallel()
	p := NewPlaces(64)
	take := func(who listen.Guest) (n int) {
		for p.enter(who) {
			n++
		}
		return n
	}
	ann, bob, cid, first := listen.Guest{Name: "ann"}, listen.Guest{Name: "bob"}, listen.Guest{Name: "cid"}, listen.Guest{First: true}
	for _, c := range []struct {
		who  listen.Guest
		want int
	}{{ann, 32}, {bob, 8}, {cid, 8}, {listen.Guest{}, 8}, {bob, 0}, {first, 8}, {first, 0}} {
		if n := take(c.who); n != c.want {
			t.Errorf("%+v took %d places, want %d", c.who, n, c.want)
		}
	}
	leave := func(who listen.Guest, n int) {
		for range n {
			p.leave(who)
		}
	}
	leave(ann, 32)
	leave(cid, 8)
	if n := take(bob); n != 8 {
		t.Errorf("bob took %d places more while half of them were free", n)
	}
	leave(bob, 16)
	leave(listen.Guest{}, 8)
	leave(first, 8)
	if p.all != 0 || len(p.of) != 0 {
		t.Errorf("%d places are taken by %v", p.all, p.of)
	}
}

// A body beyond the bound cannot be read to its end.
func TestBodyIsBounded(t *testing.T) {
	t.Parallel()
	places := NewPlaces(1)
	h := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			Refuse(w, http.StatusRequestEntityTooLarge, err)
		}
	}
	for size, want := range map[int]int{BodyMax: http.StatusOK, BodyMax + 1: http.StatusRequestEntityTooLarge} {
		w := httptest.NewRecorder()
		places.Serve(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size))), listen.Guest{}, h)
		if w.Code != want {
			t.Errorf("%d bytes: %d, want %d", size, w.Code, want)
		}
	}
}

// A refusal is one line of JSON, whatever the reason holds.
func TestRefusalIsJSON(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Refuse(w, http.StatusBadRequest, errors.New("a\nb\xff"+strings.Repeat("c", 2*wordsMax)))
	if got := w.Body.String(); !strings.HasPrefix(got, `{"error":"a b?ccc`) || !strings.HasSuffix(got, "ccc...\"}\n") || len(got) > wordsMax+50 {
		t.Fatalf("%.60s ... (%d bytes)", got, len(got))
	}
	w = httptest.NewRecorder()
	Answer(w, func() {})
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "error") {
		t.Fatalf("an answer that is no JSON: %d %s", w.Code, w.Body)
	}
}

// The server answers until its context ends, and says why where it cannot serve.
func TestServe(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l := testkit.Need(lc.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Answer(w, "here") }))
	}()
	r := testkit.Need(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", http.NoBody))(t)
	resp := testkit.Need(http.DefaultClient.Do(r))(t)
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "\"here\"\n" {
		t.Fatalf("%q, %v", body, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("ended with %v", err)
	}
	if err := Serve(t.Context(), l, http.NotFoundHandler()); err == nil { // its listener is closed
		t.Fatal("serves on a closed listener")
	}
}
