package access

// Claims: at the ports of scheduler and master each caller has a rate of its own, by identity, or by address in the clear; who
// exceeds it is told so in words and when to come again; so is who keeps too many calls open.

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

func submitter(name string) rpc.Caller {
	return rpc.Caller{Identity: secure.Identity{Role: secure.Submitter, Name: name}, Shown: true}
}

func TestRateOfEachCaller(t *testing.T) {
	t.Parallel()
	ann, bob := submitter("ann"), submitter("bob")
	here, there := rpc.Caller{Clear: true, Address: "127.0.0.1"}, rpc.Caller{Clear: true, Address: "127.0.0.2"}
	for name, c := range map[string]struct {
		greedy, other rpc.Caller
		who           string
	}{
		"by identity": {ann, bob, "submitter/ann"},
		"by address":  {here, there, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, now := New(true, "", slog.New(slog.DiscardHandler)), time.Unix(1e9, 0)
			g.now = func() time.Time { return now }
			_, h := headroomv1connect.NewSchedulerServiceHandler(headroomv1connect.UnimplementedSchedulerServiceHandler{}, connect.WithInterceptors(g))
			list := func(who rpc.Caller) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(rpc.WithCaller(t.Context(), who), http.MethodPost, headroomv1connect.SchedulerServiceListProcedure, strings.NewReader("{}"))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w
			}
			for range rpc.CallBurst {
				if w := list(c.greedy); w.Code != http.StatusNotImplemented {
					t.Fatalf("within its rate: %d %s", w.Code, w.Body)
				}
			}
			w := list(c.greedy)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), c.who+" exceeded 200 calls per second") {
				t.Errorf("beyond its rate: %d, %v, %s", w.Code, w.Header(), w.Body)
			}
			if w := list(c.other); w.Code != http.StatusNotImplemented {
				t.Errorf("another caller: %d %s", w.Code, w.Body)
			}
			now = now.Add(time.Second)
			if w := list(c.greedy); w.Code != http.StatusNotImplemented {
				t.Errorf("a second later: %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestOpenCallsOfEachCaller(t *testing.T) {
	t.Parallel()
	g := New(false, "", slog.New(slog.DiscardHandler))
	g.now = func() time.Time { return time.Unix(1e9, 0) }
	as := func(who rpc.Caller) context.Context {
		return testkit.Need(g.Admit(rpc.WithCaller(t.Context(), who), headroomv1connect.SlotServiceAwaitProcedure))(t)
	}
	ann, bob := as(submitter("ann")), as(submitter("bob"))
	var ends []func()
	for range callsAtOnce {
		ends = append(ends, testkit.Need(g.begin(ann))(t))
	}
	_, err := g.WrapUnary(nil)(rpc.WithCaller(t.Context(), submitter("ann")), awaiting{connect.NewRequest(&headroomv1.SlotAwait{})})
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "submitter/ann has 256 open") {
		t.Errorf("one more: %v", err)
	}
	testkit.Need(g.begin(bob))(t)()
	for _, end := range ends {
		end()
	}
	testkit.Need(g.begin(ann))(t)()
	if len(g.running) != 0 {
		t.Errorf("%v are counted after their ends", g.running)
	}
}

// awaiting is a request of Await.
type awaiting struct{ connect.AnyRequest }

func (awaiting) Spec() connect.Spec {
	return connect.Spec{Procedure: headroomv1connect.SlotServiceAwaitProcedure}
}
