// Claims: metrics follow the rules that docs/metrics-coordinator.md states: base
// units and names that Prometheus' own linter takes, bounded labels; a follower
// tells what it knows and nothing of what only the leader hears; unknown is absent,
// and counters are there before their first event.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/scrape"
	"headroom/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaderView is a cluster with everything that a leader can tell.
func leaderView() *View {
	return &View{
		Leads: true, Revision: 4812,
		Domains: []*headroomv1.Domain{
			{Name: "site/lab", BudgetUw: 3_200_000_000, ReservedUw: 2_700_500_000, UnmanagedUw: 240_000_000, HeadroomUw: 259_500_000, MeasuredUw: new(int64(2_612_000_000)), PowerKnownUw: new(int64(2_612_000_000)), PowerUnknownNodes: new(uint32(0))},
			{Name: "rack/r1", Parent: "site/lab", BudgetUw: 2_400_000_000, ReservedUw: 2_500_000_000, HeadroomUw: -100_000_000, PowerKnownUw: new(int64(122_000_000)), PowerUnknownNodes: new(uint32(1))},
		},
		Nodes:       []*headroomv1.Node{{Name: "n1", State: "ok"}, {Name: "n2", State: "ok", CertificateEndsUs: new(int64(1_790_000_000_000_000))}, {Name: "n3", State: "lost"}},
		Health:      []*headroomv1.HealthItem{{Code: "node-lost", Severity: "warn"}, {Code: "thermal", Severity: "warn"}, {Code: "thermal", Severity: "warn"}},
		JobsRunning: map[string]int{"local": 2, "slurm": 1, "spark": 1}, EnergyByClass: map[string]float64{"high": 7850, "low": 26150.5}, EnergyIdle: 900,
		Lag: map[string]uint64{"c1": 0, "c2": 3}, SnapshotBytes: new(int64(81_920)), LogBytes: new(int64(67_108_864)),
		TurnedOut: new(uint64(17)), CertificateEnds: time.Unix(1_800_000_000, 0),
	}
}

// followerView is the same cluster, as a follower knows it.
func followerView() *View {
	v := leaderView()
	v.Leads, v.Lag, v.Health = false, nil, nil
	for _, d := range v.Domains {
		d.MeasuredUw, d.PowerKnownUw, d.PowerUnknownNodes = nil, nil, nil
	}
	return v
}

// busyCounts have counted something of everything.
func busyCounts() *Counts {
	c := NewCounts()
	c.Granted(40 * time.Millisecond)
	c.NotAdmitted(2)
	c.Committed(3*time.Millisecond, 4812)
	c.Applied(90 * time.Microsecond)
	c.Planned("weighted", 2*time.Millisecond)
	c.Planned("made-up", time.Hour)
	c.Missed()
	c.Stopped()
	c.Dropped(9)
	c.Dropped(0)
	c.Judged("missed")
	c.Judged("")
	c.Estimated("learned", 0.03)
	c.Estimated("made-up", 0.03)
	c.Sprinted()
	c.Moved("deflate")
	c.Moved("made-up")
	c.Led("c1")
	c.Led("")
	c.Led("c1")
	c.Led("c2")
	c.Violated("site/lab", 50*units.Watt, 2*time.Second)
	c.Violated("gone", 50*units.Watt, 2*time.Second)
	c.Short("rack/r1", time.Second)
	c.rpcRequests.WithLabelValues("/headroom.v1.ClusterService/GetStatus", "ok").Inc()
	c.rpcDuration.WithLabelValues("/headroom.v1.ClusterService/GetStatus").Observe(0.004)
	return c
}

func of(v *View, c *Counts) *Collector { return New("0.1.0", func() *View { return v }, c) }

// gather is one scrape of a collector whose every metric must be one that it describes.
func gather(t *testing.T, c *Collector) []*dto.MetricFamily {
	t.Helper()
	own := prometheus.NewPedanticRegistry()
	own.MustRegister(c)
	families, err := own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values are the counters and gauges of a scrape, by name and labels.
func values(families []*dto.MetricFamily) map[string]float64 {
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, l.GetName()+"="+l.GetValue())
			}
			if m.GetHistogram() == nil {
				found[f.GetName()+"{"+strings.Join(pairs, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// Prometheus' own linter, over everything that a server can tell and its process too.
func TestLint(t *testing.T) {
	t.Parallel()
	families, err := scrape.Gatherer(of(leaderView(), busyCounts())).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			if n := l.GetName(); n == "instance" || n == "job" {
				t.Errorf("%s has the label %s, which is Prometheus' own", f.GetName(), n)
			}
		}
	}
}

func TestALeaderTellsEverything(t *testing.T) {
	t.Parallel()
	families := gather(t, of(leaderView(), busyCounts()))
	if len(families) != len(all()) {
		t.Errorf("%d metrics of %d", len(families), len(all()))
	}
	found := values(families)
	for point, want := range map[string]float64{
		budgetWatts + "{domain=site/lab}":                            3200,
		headroomWatts + "{domain=rack/r1}":                           -100,
		measuredWatts + "{domain=site/lab}":                          2612,
		violationSeconds + "{domain=site/lab}":                       2,
		violationJoules + "{domain=site/lab}":                        100,
		violationSeconds + "{domain=rack/r1}":                        0,
		shortfallSeconds + "{domain=rack/r1}":                        1,
		nodes + "{state=ok}":                                         2,
		nodes + "{state=lost}":                                       1,
		nodes + "{state=off}":                                        0,
		grants + "{result=granted}":                                  1,
		grants + "{result=not-admitted}":                             2,
		jobs + "{engine=local}":                                      2,
		jobs + "{engine=yarn}":                                       0,
		jobs + "{engine=other}":                                      2,
		jobStops + "{}":                                              1,
		tasksDropped + "{}":                                          9,
		classJoules + "{class=low}":                                  26150.5,
		idleJoules + "{}":                                            900,
		ticksMissed + "{}":                                           1,
		leader + "{}":                                                1,
		leaderChanges + "{}":                                         1,
		memberLag + "{member=c2}":                                    3,
		turnedOut + "{}":                                             17,
		certificateEnds + "{}":                                       1.8e9,
		healthShown + "{code=node-lost,severity=warn}":               1,
		healthShown + "{code=thermal,severity=warn}":                 1,
		healthShown + "{code=measured-above-reserved,severity=fail}": 0,
	} {
		if got, ok := found[point]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", point, got, ok, want)
		}
	}
	for _, never := range []string{measuredWatts + "{domain=rack/r1}", violationSeconds + "{domain=gone}"} {
		if v, ok := found[never]; ok {
			t.Errorf("%s is %v: what is unknown is absent", never, v)
		}
	}
}

// What only the leader hears is absent on a follower, and not 0.
func TestAFollowerTellsWhatItKnows(t *testing.T) {
	t.Parallel()
	found := values(gather(t, of(followerView(), NewCounts())))
	for point, want := range map[string]float64{
		leader + "{}": 0, budgetWatts + "{domain=site/lab}": 3200, revision + "{}": 4812, leaderChanges + "{}": 0,
		healthShown + "{code=brake-set,severity=fail}": 0, violationSeconds + "{domain=rack/r1}": 0,
	} {
		if got, ok := found[point]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", point, got, ok, want)
		}
	}
	for point := range found {
		for _, name := range []string{measuredWatts, nodes, jobs, memberLag, healthShown + "{code=node-lost", healthShown + "{code=member-"} {
			if point == name || strings.HasPrefix(point, name+"{") || strings.HasPrefix(point, name) && strings.Contains(name, "code") {
				t.Errorf("%s: a follower cannot know it", point)
			}
		}
	}
}

// What nodes and operators make up neither breaks a scrape nor makes it grow.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	v := leaderView()
	for i := range 1000 {
		v.Health = append(v.Health, &headroomv1.HealthItem{Code: fmt.Sprintf("made-up-%d", i), Severity: "warn"})
	}
	v.Health = append(v.Health,
		&headroomv1.HealthItem{Code: "BAD \xff", Severity: "warn"}, &headroomv1.HealthItem{Code: "bad", Severity: "made-up"}, &headroomv1.HealthItem{Code: "brake-set", Severity: "fail"})
	v.Domains[1].Name = strings.Repeat("ä", 500) + "\xff"
	v.Domains = append(v.Domains, v.Domains[0])
	families := gather(t, of(v, NewCounts()))
	shown := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if len(l.GetValue()) > scrape.LabelMost+2 {
					t.Errorf("%s: label of %d bytes", f.GetName(), len(l.GetValue()))
				}
			}
			if f.GetName() == healthShown {
				shown++
			}
		}
	}
	if shown > foreignMost+len(HealthItems()) {
		t.Errorf("%d health items told", shown)
	}
	if values(families)[healthShown+"{code=brake-set,severity=fail}"] != 1 {
		t.Error("an alarm of the cluster is lost among what nodes made up")
	}
}

// Calls are counted by how they ended, refusals of an interceptor behind too.
func TestCallsAreCounted(t *testing.T) {
	t.Parallel()
	c := NewCounts()
	refuse := connect.UnaryInterceptorFunc(func(connect.UnaryFunc) connect.UnaryFunc {
		return func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
			return nil, connect.NewError(connect.CodePermissionDenied, errors.New("no"))
		}
	})
	const call = "/test.Service/Call"
	mux := http.NewServeMux()
	mux.Handle(call, connect.NewUnaryHandler(call, func(context.Context, *connect.Request[headroomv1.Epoch]) (*connect.Response[headroomv1.Epoch], error) {
		return nil, nil
	}, connect.WithInterceptors(c.Interceptor(), refuse)))
	server := httptest.NewServer(mux)
	defer server.Close()
	client := connect.NewClient[headroomv1.Epoch, headroomv1.Epoch](server.Client(), server.URL+call)
	if _, err := client.CallUnary(t.Context(), connect.NewRequest(&headroomv1.Epoch{})); err == nil {
		t.Error("not refused")
	}
	found := values(gather(t, of(followerView(), c)))
	if got := found[rpcRequests+"{code=permission_denied,method="+call+"}"]; got != 1 {
		t.Errorf("%v calls counted, want 1", got)
	}
	for _, err := range []error{nil, context.Canceled, errors.New("any"), connect.NewError(connect.CodeAborted, nil)} {
		if !slices.Contains(codes(), codeOf(err)) {
			t.Errorf("code %q is not in the list", codeOf(err))
		}
	}
}

// ofProcess are the lines that differ from one process to the next.
var ofProcess = regexp.MustCompile(`(?m)^(# (HELP|TYPE|UNIT) )?process_.*\n`)

// What Prometheus reads, whole: a leader, and a follower that has counted nothing.
// The bubble's clock stands still, so exemplars have one time.
func TestScrapeGolden(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]*Collector{"leader.txt": of(leaderView(), nil), "follower.txt": of(followerView(), nil)} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.counts = NewCounts()
				if c.view().Leads {
					c.counts = busyCounts()
				}
				r := httptest.NewRequest(http.MethodGet, scrape.Path, nil)
				r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
				w := httptest.NewRecorder()
				scrape.Handler(scrape.Gatherer(c), nil).ServeHTTP(w, r)
				text := ofProcess.ReplaceAllString(w.Body.String(), "")
				if strings.Contains(text, `# {revision="4812"}`) != c.view().Leads {
					t.Error("the revision beside a commit is missing, or made up")
				}
				golden(t, "testdata/"+file, strings.ReplaceAll(text, runtime.Version(), "GO"))
			})
		})
	}
}

func TestPageTellsEveryMetric(t *testing.T) {
	t.Parallel()
	page := Page()
	for _, m := range all() {
		if strings.Count(page, "\n| `"+m.Name+"` | "+m.Kind+" |") != 1 {
			t.Errorf("the page does not have one line for %s", m.Name)
		}
	}
	golden(t, "../../docs/metrics-coordinator.md", page)
	if !slices.IsSortedFunc(HealthItems(), func(a, b HealthItem) int { return strings.Compare(a.Code, b.Code) }) {
		t.Error("the alarms are not in the order of their codes")
	}
	if n := len(slices.Collect(maps.Keys(values(gather(t, of(leaderView(), NewCounts())))))); n > 100 {
		t.Errorf("%d series of one small cluster", n)
	}
}

// golden compares with a file; UPDATE=1 writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (UPDATE=1 go test writes it anew); got:\n%s", path, got)
	}
}
