// Claims: metrics follow the rules that docs/metrics.md states: unknown is absent,
// counters are there before their first event, base units, bounded labels, valid
// text whatever a machine calls its zones; a scrape resets nothing, and values
// change at most once a second.
package agent

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
)

// fullStatus is a node with everything that a status can tell.
func fullStatus() *headroomv1.GetAgentStatusResponse {
	return &headroomv1.GetAgentStatusResponse{
		Node: "n03", Version: "0.1.0", Domain: "rack/r1", UptimeMs: 273_600_000, Tree: "kernel", Rung: "rapl", Enforce: true,
		Holding: &headroomv1.Holding{
			State:   headroomv1.LeaseState_LEASE_STATE_HELD,
			Applied: &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 7}, Seq: 90211},
			CapUw:   190_000_000, EffectiveUw: new(int64(189_900_000)), FailSafeUw: 95_000_000,
		},
		LeaseMs: new(int64(4100)), Leader: "c2", PowerUw: new(int64(153_240_000)), DemandUw: new(int64(204_000_000)), LimitedRatio: new(0.12),
		LimitedBy: "cap",
		Zones: []*headroomv1.ZoneStatus{
			{
				Zone: "package-0", Kind: "package", ControlType: "intel-rapl", PowerUw: new(int64(61_449_999)), EnergyUj: new(int64(6_310_999_999)),
				RequestedUw: new(int64(72_000_000)), WrittenUw: new(int64(72_000_000)), EffectiveUw: new(int64(72_000_000)), WindowUs: new(int64(999_424)),
				State: "limited",
			},
			{Zone: "dram-0", Kind: "dram", ControlType: "intel-rapl", PowerUw: new(int64(9_800_000)), EnergyUj: new(int64(12_000_000)), State: "read-only"},
			{
				Zone: "package-1", Kind: "package", ControlType: "intel-rapl", RequestedUw: new(int64(72_000_000)), WrittenUw: new(int64(72_000_000)),
				EffectiveUw: new(int64(70_000_000)), State: "drift",
			},
		},
		Health: []*headroomv1.HealthItem{{
			Code: "limit-drift", Severity: "warn", Text: "package-1 holds 70.0 W, 72.0 W was written; another program may be writing",
			Hint: "stop the other writer",
		}},
		Saved: 10,
		Sensors: []*headroomv1.SensorStatus{
			{Source: "rapl", Name: "package-0", PowerUw: new(int64(61_449_999)), AgeMs: new(int64(250)), State: "ok"},
			{Source: "dcmi", PowerUw: new(int64(158_000_000)), AgeMs: new(int64(2100)), Disagreement: new(0.031), State: "ok"},
			{Source: "hwmon", Name: "coretemp Package id 0", TempMc: new(int64(61_000)), State: "ok"},
			{Source: "sdr", State: "stale", Text: "unchanged for 31s"},
		},
		Ladder: []*headroomv1.RungStatus{
			{Rung: "rapl", State: "used"},
			{Rung: "cpufreq", State: "locked", Text: "intel_pstate answers EBUSY"},
		},
		Policies: []*headroomv1.PolicyStatus{{
			Policy: "policy0", Driver: "intel_pstate", Governor: "powersave", Epp: "balance_power", FreqKhz: new(int64(2_410_000)),
			MinKhz: new(int64(800_000)), MaxKhz: new(int64(3_500_000)), EffectiveKhz: new(int64(3_500_000)), State: "ok",
		}},
		Sprint:  &headroomv1.SprintStatus{Id: "s-17", CapUw: 220_000_000, BaseUw: 190_000_000, RemainingMs: 8200, EscrowUj: 600_000_000, SpentUj: new(int64(140_000_000))},
		Rivals:  []string{"thermald.service"},
		OtherUw: new(int64(13_500_000)), OtherFrom: "learned",
		Local: &headroomv1.LocalLimit{
			CapUw: new(int64(150_000_000)), RemainingMs: 61_000, Change: &headroomv1.Change{Actor: "mia", Reason: "fan test", RequestId: "01K"},
		},
		Advertise: "10.0.0.3", Slices: []*headroomv1.SliceStatus{{Slice: "batch.slice", RequestedCpus: new(2.5), WrittenCpus: new(2.5), EffectiveCpus: new(2.5)}},
		Counters: &headroomv1.AgentCounters{Renewals: 90210, Refusals: 1, Expiries: 2, Steps: 4, DeadlineMisses: 3, Drifts: 5, WriteErrors: 6, ThermalEvents: 7, Sprints: 8},
	}
}

func fullSource(context.Context) *headroomv1.GetAgentStatusResponse { return fullStatus() }

func TestMetricsGolden(t *testing.T) {
	t.Parallel()
	var loop loopMetrics
	loop.ObserveStep(40 * time.Microsecond)
	loop.ObserveStep(time.Second)
	loop.ObserveSettle(600 * time.Millisecond)
	loop.AddLimited("cap", 1500*time.Millisecond)
	loop.AddLimited("nobody", time.Hour)
	got := string(collect(fullStatus(), &loop).text())
	golden(t, "metrics.txt", strings.ReplaceAll(got, runtime.Version(), "GO"))
}

// golden compares with a file of testdata; UPDATE=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
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

// Before anything is known, only what counts and what is certain is there.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*headroomv1.GetAgentStatusResponse{"no status": nil, "empty status": {}} {
		text := string(collect(s, &loopMetrics{}).text())
		for _, f := range families() {
			here := strings.Contains(text, "\n"+f.name) || strings.HasPrefix(text, f.name)
			perZone := f.name == mZoneEnergy || f.name == mCPU
			if f.kind == counterKind && !perZone && !here {
				t.Errorf("%s: %s must be there with 0 before its first event", name, f.name)
			}
		}
		for _, never := range []string{mNodePower, mZonePower, mLeaseLeft, mNodeCap, mNodeDemand, mNodeLimited, mSensorAge, mFreq} {
			if strings.Contains(text, never) {
				t.Errorf("%s: %s is there although it is unknown", name, never)
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, " -1") {
			t.Errorf("%s: a value stands for unknown:\n%s", name, text)
		}
	}
}

// The rules of Prometheus' own linter, and ours.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^(headroom|process)(_[a-z]+)+$`)
	scaled := regexp.MustCompile(`(milli|micro|nano|kilo|mega|_ms|_us|_kwh|percent|minutes|hours|_volts_)`)
	units := []string{"watts", "joules", "seconds", "hertz", "celsius", "ratio", "bytes", "info"}
	seen := map[string]bool{}
	for _, f := range families() {
		switch {
		case seen[f.name]:
			t.Errorf("%s is there twice", f.name)
		case !form.MatchString(f.name), scaled.MatchString(f.name):
			t.Errorf("%s is no name of a metric in base units", f.name)
		case (f.kind == counterKind) != strings.HasSuffix(f.name, "_total"):
			t.Errorf("%s: a counter, and nothing else, ends in _total", f.name)
		case f.kind == histogramKind && !strings.HasSuffix(f.name, "_seconds"):
			t.Errorf("%s: a histogram here is of seconds", f.name)
		case !strings.HasSuffix(f.help, ".") || len(f.help) < 10:
			t.Errorf("%s: help %q", f.name, f.help)
		case len(f.labels) != len(f.values):
			t.Errorf("%s: the values of each label must be listed", f.name)
		}
		seen[f.name] = true
		for _, l := range f.labels {
			if slices.Contains([]string{"instance", "job", "le", "quantile", "node"}, l) {
				t.Errorf("%s: label %s belongs to somebody else", f.name, l)
			}
		}
		words := strings.Split(strings.TrimSuffix(f.name, "_total"), "_")
		for i, w := range words {
			if slices.Contains(units, w) && i != len(words)-1 && f.name != mResident && f.name != mStart && f.name != mCPU && !slices.Contains(units, words[len(words)-1]) {
				t.Errorf("%s: the unit stands at the end", f.name)
			}
		}
	}
	if len(limiters()) != limitersMax || len(stepBuckets{}.upper()) >= bucketsMax || len(settleBuckets{}.upper()) >= bucketsMax {
		t.Error("a bound of loopMetrics is too small")
	}
}

// Lesson: RAPL at a high rate tells what a processor computes, so powerd does not
// hand it on: two scrapes within a second get the same answer, and values are coarse.
func TestScrapesAreNoProbe(t *testing.T) {
	t.Parallel()
	status := fullStatus()
	now := 10 * time.Second
	asked := 0
	s := &scraper{
		status: func(context.Context) *headroomv1.GetAgentStatusResponse { asked++; return proto.CloneOf(status) },
		loop:   &loopMetrics{}, now: func() time.Duration { return now },
	}
	first := s.text(t.Context())
	status.Zones[0].PowerUw, status.Zones[0].EnergyUj = new(int64(80_000_000)), new(int64(7_000_000_000))
	now += metricsAge - 1
	if !bytes.Equal(first, s.text(t.Context())) || asked != 1 {
		t.Errorf("a scrape within a second saw something new (asked %d times)", asked)
	}
	now++
	second := s.text(t.Context())
	for _, want := range []string{mZonePower + `{zone="package-0",socket="0"} 80` + "\n", mZoneEnergy + `{zone="package-0",socket="0"} 7000` + "\n"} {
		if !strings.Contains(string(second), want) {
			t.Errorf("no %q after a second", want)
		}
	}
	for _, want := range []string{mZonePower + `{zone="package-0",socket="0"} 61.4` + "\n", mZoneEnergy + `{zone="package-0",socket="0"} 6310` + "\n"} {
		if !strings.Contains(string(first), want) {
			t.Errorf("no %q: power is in tenths of a watt, energy in whole joules", want)
		}
	}
}

// Lesson: a scrape that resets what it reads makes two readers see half each.
func TestScrapeResetsNothing(t *testing.T) {
	t.Parallel()
	var loop loopMetrics
	loop.ObserveStep(time.Millisecond)
	first := collect(fullStatus(), &loop).text()
	if second := collect(fullStatus(), &loop).text(); !bytes.Equal(first, second) {
		t.Errorf("the second scrape differs:\n%s", second)
	}
}

// However many turns are counted while a scrape reads, its buckets are cumulative
// and its count is that of its last bucket.
func TestHistogramIsWhole(t *testing.T) {
	t.Parallel()
	var h histogram[stepBuckets]
	stop := make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.observe(time.Duration(i%400) * time.Millisecond)
			}
		}
	})
	last := uint64(0)
	for range 200 {
		v := h.view()
		if !slices.IsSorted(v.below) || v.below[len(v.below)-1] != v.count || v.count < last {
			t.Errorf("buckets %v, count %d after %d", v.below, v.count, last)
		}
		last = v.count
	}
	close(stop)
	counting.Wait()
	var edge histogram[settleBuckets]
	edge.observe(time.Second)
	edge.observe(time.Hour)
	if v := edge.view(); v.below[5]-v.below[4] != 1 || v.count != 2 || v.below[len(v.below)-2] != 1 {
		t.Errorf("a bound belongs to its own bucket, the rest to +Inf: %v", v.below)
	}
}

func TestServeMetrics(t *testing.T) {
	t.Parallel()
	l, err := listenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(served)
		serveMetrics(ctx, l, fullSource, &loopMetrics{}, testLog(t))
	}()
	defer func() { cancel(); <-served }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Get(rpc.BaseURL(l.Addr().String()) + metricsPath)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != metricsType || !strings.Contains(body.String(), mBuild) ||
		!strings.Contains(body.String(), mResident) {
		t.Errorf("%s %s\n%s", res.Status, res.Header.Get("Content-Type"), body.String())
	}
}

func TestScrapeMethod(t *testing.T) {
	t.Parallel()
	s := &scraper{status: fullSource, loop: &loopMetrics{}, now: func() time.Duration { return time.Second }}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, metricsPath, nil))
	if w.Code != http.StatusOK || w.Body.Len() == 0 {
		t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
	}
}

// textLine is one line of the text format as its specification has it.
var textLine = regexp.MustCompile(`^([a-z_]+)(\{[a-z_]+="([^"\\\n]|\\[\\"n])*"(,[a-z_]+="([^"\\\n]|\\[\\"n])*")*\})? [-+0-9.eInf]+$`)

// Whatever a machine calls its zones and sensors, the text stays well-formed and
// no series is there twice.
func FuzzExposition(f *testing.F) {
	f.Add("package-0", "dcmi", "a\"b\\c\nd", int64(61_400_000))
	f.Add("", "\xff\xfe", "warn", int64(-1))
	f.Fuzz(func(t *testing.T, zone, sensor, code string, uw int64) {
		s := fullStatus()
		s.Zones[0].Zone, s.Zones[1].Zone, s.Zones[0].PowerUw = zone, zone, &uw
		s.Sensors[0].Name, s.Sensors[1].Name, s.Sensors[1].Source = sensor, sensor, "rapl"
		s.Health[0].Code = code
		checkText(t, collect(s, &loopMetrics{}).text())
	})
}

func checkText(t *testing.T, text []byte) {
	t.Helper()
	seen := map[string]bool{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "# HELP ") || strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		if !textLine.MatchString(line) {
			t.Fatalf("not a line of the text format: %q", line)
		}
		series := line[:strings.LastIndexByte(line, ' ')]
		if seen[series] {
			t.Fatalf("%q is there twice", series)
		}
		seen[series] = true
	}
}
