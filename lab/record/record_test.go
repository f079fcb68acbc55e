// Claims: the picture is whole at every moment and holds what was seen; what was not
// known is a gap, never 0; a leader that is away for a while is a gap and no end; an end
// by Ctrl-C leaves the picture whole; names cannot break it.
package record

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/units"
)

// script is a cluster that shows one look after the other; a nil one gives no answer.
type script struct {
	looks []*look
	seen  func(n int)
	n     int
}

func (s *script) look(context.Context) (look, error) {
	s.n++
	if s.seen != nil {
		s.seen(s.n)
	}
	l := s.looks[min(s.n, len(s.looks))-1]
	if l == nil {
		return look{}, rpc.NotLeader("", "")
	}
	return *l, nil
}

func seen(budget units.Power, measured *int64, jobs ...*headroomv1.Job) *look {
	return &look{
		domains: []*headroomv1.Domain{{Name: "rack/r1", Parent: "site/lab", BudgetUw: 9e9}, {Name: "site/lab", BudgetUw: int64(budget), ReservedUw: int64(budget - 20*units.Watt)}},
		nodes:   []*headroomv1.Node{{Name: "n01", TargetUw: new(int64(200_000_000)), PowerUw: measured}}, jobs: jobs,
	}
}

func running(id string, done, containers uint32, finish *float64) *headroomv1.Job {
	return &headroomv1.Job{
		Id: id, UncappedS: new(100.0), Outlook: &headroomv1.JobOutlook{FinishS: finish}, Progress: &headroomv1.JobProgress{Tasks: 40, Done: done, Containers: containers},
	}
}

// wellFormed parses a picture and answers its text.
func wellFormed(t *testing.T, svg []byte) (text string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if x, ok := token.(xml.CharData); ok {
			text += string(x)
		}
	}
	if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("no number in\n%s", svg)
	}
	return text
}

func TestPictureIsWholeAtEveryMoment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := options{out: filepath.Join(dir, "run.svg"), length: 5 * time.Second, interval: time.Second}
		w := &script{looks: []*look{
			seen(600*units.Watt, nil, running("job_1", 0, 4, nil)), seen(600*units.Watt, new(int64(550e6)), running("job_1", 10, 4, new(110.0))), nil,
			seen(400*units.Watt, new(int64(390e6)), running("job_1", 20, 6, new(130.0)), running("<job&2>", 1, 2, nil)),
		}}
		pictures := 0
		w.seen = func(n int) {
			if n < 2 {
				return
			}
			svg := testkit.Need(os.ReadFile(o.out))(t)
			wellFormed(t, svg)
			pictures++
		}
		var stderr bytes.Buffer
		testkit.Check(t, o.run(t.Context(), w, &stderr))
		if n := strings.Count(stderr.String(), "no answer, retrying"); n != 1 || pictures < 4 {
			t.Errorf("%d pictures, said %q", pictures, stderr.String())
		}
		svg := testkit.Need(os.ReadFile(o.out))(t)
		text := wellFormed(t, svg)
		for _, want := range []string{"budget", "reserved", "nodes draw", "job_1", "<job&2>", "power (W)", "containers", "predicted end"} {
			if !strings.Contains(text, want) {
				t.Errorf("the picture does not say %q", want)
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// Ctrl-C is an end like any other.
func TestInterruptedRunIsWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := options{out: filepath.Join(dir, "run.svg"), interval: time.Second}
		w := &script{looks: []*look{seen(600*units.Watt, nil)}, seen: func(n int) {
			if n == 4 {
				cancel()
			}
		}}
		testkit.Check(t, o.run(ctx, w, io.Discard))
		svg := testkit.Need(os.ReadFile(o.out))(t)
		wellFormed(t, svg)
	})
}

// A value that is unknown draws nothing, and a run that has not begun is a picture too.
func TestUnknownDrawsNothing(t *testing.T) {
	t.Parallel()
	s := newStrip([]look{*seen(1, nil), {}, *seen(1, new(int64(5e6)))}, "x", "y", 1)
	var got []float64
	for _, l := range s.looks {
		if x := sum(func(n *headroomv1.Node) *int64 { return n.PowerUw })(l); x != nil {
			got = append(got, *x)
		}
	}
	if !slices.Equal(got, []float64{5}) {
		t.Errorf("values %v", got)
	}
	empty := testkit.Need(draw(nil))(t)
	if text := wellFormed(t, empty); !strings.Contains(text, "time (s)") || !strings.Contains(text, "budget") {
		t.Errorf("an empty picture says %s", text)
	}
}

// A long run is thinned, its ends are kept.
func TestLongRunsAreThinned(t *testing.T) {
	t.Parallel()
	looks := make([]look, 5000)
	for i := range looks {
		looks[i].at = time.Duration(i) * time.Second
	}
	out := thinned(looks)
	if len(out) != maxPoints || out[0].at != 0 || out[maxPoints-1].at != 4999*time.Second || !slices.IsSortedFunc(out, func(a, b look) int { return int(a.at - b.at) }) {
		t.Errorf("%d looks from %v to %v", len(out), out[0].at, out[len(out)-1].at)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--interval", "1ms"}, {"--for", "-1s"}, {"--out", ""}, {"--cert", "none.pem"}} {
		cmd := NewCommand()
		cmd.SetArgs(args)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(t.Context())
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// coordinators answer as a leader does.
type coordinators struct {
	headroomv1connect.UnimplementedClusterServiceHandler
	headroomv1connect.UnimplementedJobServiceHandler
}

func (coordinators) ListDomains(context.Context, *connect.Request[headroomv1.ListDomainsRequest]) (*connect.Response[headroomv1.ListDomainsResponse], error) {
	return connect.NewResponse(&headroomv1.ListDomainsResponse{Domains: []*headroomv1.Domain{{Name: "site/lab", BudgetUw: 600_000_000, ReservedUw: 500_000_000}}}), nil
}

func (coordinators) ListNodes(context.Context, *connect.Request[headroomv1.ListNodesRequest]) (*connect.Response[headroomv1.ListNodesResponse], error) {
	return connect.NewResponse(&headroomv1.ListNodesResponse{Nodes: []*headroomv1.Node{{Name: "n01", TargetUw: new(int64(200_000_000)), EffectiveUw: new(int64(190_000_000))}}}), nil
}

func (coordinators) ListJobs(_ context.Context, r *connect.Request[headroomv1.ListJobsRequest]) (*connect.Response[headroomv1.ListJobsResponse], error) {
	job := &headroomv1.Job{
		Id: "a", State: headroomv1.JobState_JOB_STATE_RUNNING, UncappedS: new(100.0), Outlook: &headroomv1.JobOutlook{FinishS: new(120.0), Containers: new(uint32(7))},
		Progress: &headroomv1.JobProgress{Tasks: 40, Done: 8, Dropped: 2, Containers: 6, RunningOn: map[string]uint32{"n01": 5}},
	}
	if r.Msg.GetAfter() == "" {
		return connect.NewResponse(&headroomv1.ListJobsResponse{Jobs: []*headroomv1.Job{job}, More: true}), nil
	}
	return connect.NewResponse(&headroomv1.ListJobsResponse{Jobs: []*headroomv1.Job{{Id: "b", State: headroomv1.JobState_JOB_STATE_DONE}}}), nil
}

// A look contains what the coordinators return, all pages of it.
func TestLooksThroughTheAPI(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewClusterServiceHandler(coordinators{}))
	mux.Handle(headroomv1connect.NewJobServiceHandler(coordinators{}))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	via := rpc.NewClient()
	defer via.CloseIdleConnections()
	w := &window{peers: rpc.PeersOver(via), addrs: []string{strings.TrimPrefix(srv.URL, "http://")}, wait: 10 * time.Second}
	l := testkit.Need(w.look(t.Context()))(t)
	if len(l.jobs) != 1 || len(l.nodes) != 1 || len(l.domains) != 1 {
		t.Fatalf("seen %+v", l)
	}
	j := l.jobs[0]
	if *holds(j) != 6 || *j.GetOutlook().FinishS != 120 || *uncapped(j) != 100 || *done(j) != 25 {
		t.Errorf("job %+v", j)
	}
	if got := *site((*headroomv1.Domain).GetBudgetUw)(l); got != 600 {
		t.Errorf("budget %v", got)
	}
}
