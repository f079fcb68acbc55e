// Claims: metrics follow the rules that docs/metrics.md states: base units and names
// that Prometheus' own linter takes, bounded labels, the labels that are listed and
// no others; unknown is absent, and counters are there before their first event.
package metrics

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/scrape"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fullStatus is a node with everything that a status can tell.
func fullStatus() *headroomv1.GetAgentStatusResponse {
	return &headroomv1.GetAgentStatusResponse{
		Node: "n03", Version: "0.1.0", Domain: "rack/r1", UptimeMs: 273_600_000, Tree: "kernel", Rung: "rapl", Enforce: true,
		Holding: &headroomv1.Holding{
			State: headroomv1.LeaseState_LEASE_STATE_HELD, Applied: stamp(), CapUw: 190_000_000, EffectiveUw: new(int64(189_900_000)), FailSafeUw: 95_000_000,
		},
		LeaseMs: new(int64(4100)), Leader: "c2", PowerUw: new(int64(153_240_000)), DemandUw: new(int64(204_000_000)), LimitedRatio: new(0.12),
		LimitedBy: "cap",
		Zones: []*headroomv1.ZoneStatus{
			{
				Zone: "package-0", Kind: "package", ControlType: "intel-rapl", PowerUw: new(int64(61_449_999)), EnergyUj: new(int64(6_310_999_999)),
				RequestedUw: new(int64(72_000_000)), WrittenUw: new(int64(72_000_000)), EffectiveUw: new(int64(72_000_000)), State: "limited",
			},
			{Zone: "dram-0", Kind: "dram", ControlType: "intel-rapl", PowerUw: new(int64(9_800_000)), EnergyUj: new(int64(12_000_000)), State: "read-only"},
			{Zone: "package-0-mmio", Kind: "package", ControlType: "intel-rapl-mmio", EffectiveUw: new(int64(90_000_000)), State: "read-only"},
			{
				Zone: "package-1", Kind: "package", ControlType: "intel-rapl", PowerUw: new(int64(58_900_000)), RequestedUw: new(int64(72_000_000)),
				WrittenUw: new(int64(72_000_000)), EffectiveUw: new(int64(70_000_000)), State: "drift",
			},
		},
		Health: []*headroomv1.HealthItem{{Code: "limit-drift", Severity: "warn", Text: "package-1 holds 70.0 W, 72.0 W was written"}},
		Saved:  10,
		Sensors: []*headroomv1.SensorStatus{
			{Source: "rapl", Name: "package-0", PowerUw: new(int64(61_449_999)), AgeMs: new(int64(250)), State: "ok"},
			{Source: "rapl", Name: "package-1", PowerUw: new(int64(58_900_000)), AgeMs: new(int64(1500)), State: "ok"},
			{Source: "dcmi", Name: "wall", PowerUw: new(int64(158_000_000)), AgeMs: new(int64(2100)), Disagreement: new(-0.031), State: "ok"},
			{Source: "model", Name: "package + dram + other", PowerUw: new(int64(153_240_000)), Disagreement: new(0.12), State: "ok"},
			{Source: "hwmon", Name: "coretemp Package id 0", TempMc: new(int64(61_000)), State: "ok"},
			{Source: "hwmon", Name: "acpi meter", State: "insane", Text: "9 kW"},
			{Source: "thermal", Name: "-", State: "absent"},
		},
		Ladder: []*headroomv1.RungStatus{{Rung: "rapl", State: "used"}, {Rung: "cpufreq", State: "ready"}, {Rung: "dcmi", State: "ready"}},
		Policies: []*headroomv1.PolicyStatus{
			{
				Policy: "policy0", FreqKhz: new(int64(2_410_000)), RequestedKhz: new(int64(2_500_000)), WrittenKhz: new(int64(2_500_000)),
				EffectiveKhz: new(int64(2_400_000)), State: "ok",
			},
			{Policy: "policy4", FreqKhz: new(int64(2_000_000)), EffectiveKhz: new(int64(3_500_000)), State: "read-only"},
		},
		Sprint:   &headroomv1.SprintStatus{Id: "s-17", CapUw: 220_000_000, BaseUw: 190_000_000, RemainingMs: 8200, EscrowUj: 600_000_000, SpentUj: new(int64(140_000_000))},
		Slices:   []*headroomv1.SliceStatus{{Slice: "batch.slice", RequestedCpus: new(2.5), WrittenCpus: new(2.5), EffectiveCpus: new(2.5)}},
		Counters: &headroomv1.AgentCounters{Renewals: 90210, Refusals: 1, Expiries: 2, Steps: 4, DeadlineMisses: 3, Drifts: 5, WriteErrors: 6, ThermalEvents: 7, Sprints: 8, OverCapMs: 1250, OverCapUj: 7_900_000},
	}
}

func stamp() *headroomv1.Stamp {
	return &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: 1, Term: 7}, Seq: 90211}
}

// busyLoop has counted something of everything.
func busyLoop() *Loop {
	l := NewLoop()
	l.ObserveStep(40 * time.Microsecond)
	l.ObserveStep(time.Second)
	l.ObserveSettle(600*time.Millisecond, stamp())
	l.ObserveSettle(time.Minute, nil)
	l.AddLimited("cap", 1500*time.Millisecond)
	l.AddLimited("nobody", time.Hour)
	l.SetThrottled(5, 2, 1)
	l.Drifted("package-1")
	l.WriteFailed("package-1", NotTaken)
	l.WriteFailed("gone.slice", Refused)
	return l
}

func said(s *headroomv1.GetAgentStatusResponse) Source {
	return func() *headroomv1.GetAgentStatusResponse { return s }
}

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
			if m.GetHistogram() == nil {
				found[f.GetName()+labelsOf(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return found
}

func labelsOf(m *dto.Metric) string {
	pairs := make([]string, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		pairs = append(pairs, l.GetName()+"="+l.GetValue())
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Prometheus' own linter, over everything that powerd can tell and the process too.
func TestLint(t *testing.T) {
	t.Parallel()
	own := prometheus.NewRegistry()
	own.MustRegister(New("0.1.0", said(fullStatus()), busyLoop()), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := own.Gather()
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
	for _, m := range all() {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == m.Name }) {
			t.Errorf("%s is told by nothing, so it was not linted", m.Name)
		}
	}
}

// What a linter cannot know: our words, and that every label's values are listed.
func TestNames(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^headroom(_[a-z]+)+$`)
	seen := map[string]bool{}
	for _, m := range all() {
		if seen[m.Name] || !form.MatchString(m.Name) || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: twice, or of another form, or no sentence: %q", m.Name, m.Help)
		}
		seen[m.Name] = true
		for _, l := range m.Labels {
			if slices.Contains([]string{"instance", "job", "node"}, l.Name) {
				t.Errorf("%s: label %s belongs to somebody else", m.Name, l.Name)
			}
			if l.Values == "" && m.Name != buildInfo {
				t.Errorf("%s: the values of %s are not listed", m.Name, l.Name)
			}
		}
	}
}

// The names and labels that dashboards and alerts are written against.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		zoneEnergy: "zone socket", zonePower: "zone socket", zoneLimit: "zone constraint stage", zoneDrift: "zone", zoneWriteErrors: "zone reason",
		nodePower: "source", nodeCap: "", nodeFailSafe: "", nodeLimitedBy: "by", nodeOverTime: "", nodeOverEnergy: "", leaseRemaining: "", leaseRenewals: "result", leaseExpiries: "",
		controlStep: "", controlMisses: "", controlSettle: "", sensorAge: "source", sensorApart: "a b", cpuFreq: "policy", cpuThrottled: "kind",
		sprintEscrow: "", healthShown: "code severity",
	} {
		if got := strings.Join(all().Find(name).LabelNames(), " "); got != want {
			t.Errorf("%s has the labels %q, want %q", name, got, want)
		}
	}
}

// Label values that are words of ours are the listed ones.
func TestListedValues(t *testing.T) {
	t.Parallel()
	open := []string{"zone", "socket", "sensor", "policy", "version", "goversion"} // names that the machine gives
	for _, f := range gather(t, New("0.1.0", said(fullStatus()), busyLoop())) {
		listed := map[string]string{}
		for _, l := range all().Find(f.GetName()).Labels {
			listed[l.Name] = l.Values
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(open, l.GetName()) && !slices.Contains(strings.Split(listed[l.GetName()], ", "), l.GetValue()) {
					t.Errorf("%s: %s=%q is not listed: %q", f.GetName(), l.GetName(), l.GetValue(), listed[l.GetName()])
				}
			}
		}
	}
}

// Before anything is known, only what counts and what is certain is there.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*headroomv1.GetAgentStatusResponse{
		"no status": nil, "empty status": {}, "a zone that is not known": {Zones: []*headroomv1.ZoneStatus{{Zone: "package-0", Kind: "package"}}},
	} {
		families := gather(t, New("0.1.0", said(s), NewLoop()))
		found := values(families)
		here := map[string]bool{}
		for _, f := range families {
			here[f.GetName()] = true
		}
		for _, m := range all() {
			ofZone := m.Name == zoneEnergy || len(s.GetZones()) == 0 && (m.Name == zoneDrift || m.Name == zoneWriteErrors)
			if m.Kind != "gauge" && !ofZone && !here[m.Name] {
				t.Errorf("%s: %s must be there with 0 before its first event", name, m.Name)
			}
		}
		for _, never := range []string{zoneEnergy, zonePower, zoneLimit, nodePower, nodeCap, nodeDemand, nodeLimited, leaseRemaining, sensorAge, sensorApart, cpuFreq, sprintSpent} {
			if here[never] {
				t.Errorf("%s: %s is there although it is unknown", name, never)
			}
		}
		for point, v := range found {
			if v < 0 || v != v {
				t.Errorf("%s: %s is %v: a value stands for unknown", name, point, v)
			}
		}
	}
}

// Each part of a machine has counts of its own, from its first day; what is gone
// keeps what was counted.
func TestWhatWentWrongIsToldByControl(t *testing.T) {
	t.Parallel()
	found := values(gather(t, New("0.1.0", said(fullStatus()), busyLoop())))
	want := map[string]float64{
		zoneDrift + "{zone=package-0}":                        0,
		zoneDrift + "{zone=package-1}":                        1,
		zoneDrift + "{zone=policy0}":                          0,
		zoneWriteErrors + "{reason=not-taken,zone=package-1}": 1,
		zoneWriteErrors + "{reason=io,zone=package-1}":        0,
		zoneWriteErrors + "{reason=locked,zone=policy0}":      0,
		zoneWriteErrors + "{reason=refused,zone=batch.slice}": 0,
		zoneWriteErrors + "{reason=refused,zone=bmc}":         0,
		zoneWriteErrors + "{reason=refused,zone=gone.slice}":  1,
		sensorAge + "{source=rapl}":                           1.5,
		sensorApart + "{a=dcmi,b=best}":                       0.031,
		sensorApart + "{a=dcmi,b=model}":                      0.12,
		healthShown + "{code=limit-drift,severity=warn}":      1,
		healthShown + "{code=bios-lock,severity=warn}":        0,
		cpuThrottled + "{kind=core}":                          5,
		nodeLimitedBy + "{by=cap}":                            1.5,
		nodeOverTime + "{}":                                   1.25,
		nodeOverEnergy + "{}":                                 7,
		nodePower + "{source=rapl}":                           130.1,
	}
	for point, v := range want {
		if got, ok := found[point]; !ok || got != v {
			t.Errorf("%s is %v (there: %v), want %v", point, got, ok, v)
		}
	}
	for _, never := range []string{
		zoneDrift + "{zone=package-0-mmio}", zoneDrift + "{zone=dram-0}", zoneDrift + "{zone=policy4}", zoneDrift + "{zone=batch.slice}", zoneDrift + "{zone=bmc}",
	} {
		if _, ok := found[never]; ok {
			t.Errorf("%s is there: powerd neither writes it nor looks for drift", never)
		}
	}
	if n := len(slices.Collect(maps.Keys(found))); n > 200 {
		t.Errorf("%d series of one small node", n)
	}
}

// Const metrics with the same labels make Prometheus' client refuse the
// whole scrape. The first counts.
func TestTheSameLabelsTwice(t *testing.T) {
	t.Parallel()
	s := fullStatus()
	s.Zones[1].Zone = s.Zones[0].Zone
	s.Health = append(s.Health, &headroomv1.HealthItem{Code: "limit-drift", Severity: "warn"})
	s.Sensors[5].Name = s.Sensors[4].Name
	s.Policies[1].Policy = s.Policies[0].Policy
	found := values(gather(t, New("0.1.0", said(s), busyLoop())))
	if got := found[zoneEnergy+"{socket=0,zone=package-0}"]; got != 6310 {
		t.Errorf("energy %v of two zones of one name, want that of the first", got)
	}
}

// Whatever a machine calls its zones and sensors, a scrape is well-formed and whole.
func FuzzLabels(f *testing.F) {
	f.Add("package-0", "dcmi", "a\"b\\c\nd", int64(61_400_000))
	f.Add("", "\xff\xfe", "warn", int64(-1))
	f.Add(strings.Repeat("ä", 100), strings.Repeat("x", 200), "\x00{}", int64(0))
	f.Fuzz(func(t *testing.T, zone, sensor, code string, uw int64) {
		s, l := fullStatus(), busyLoop()
		s.Zones[0].Zone, s.Zones[1].Zone, s.Zones[0].PowerUw = zone, zone, &uw
		s.Sensors[0].Name, s.Sensors[1].Name, s.Sensors[3].Source = sensor, sensor+"2", sensor
		s.Health[0].Code, s.Policies[0].Policy, s.Slices[0].Slice = code, zone, sensor
		l.Drifted(zone)
		l.WriteFailed(sensor, IO)
		families := gather(t, New("0.1.0", said(s), l))
		if len(families) != len(all()) {
			t.Errorf("%d metrics of %d", len(families), len(all()))
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if len(label.GetValue()) > scrape.LabelMost+2 {
						t.Errorf("%s: label of %d bytes", family.GetName(), len(label.GetValue()))
					}
				}
			}
		}
	})
}

// A hostile number of parts does not make a scrape without end.
func TestPointsAreBounded(t *testing.T) {
	t.Parallel()
	s := fullStatus()
	for i := range 2 * scrape.PointsMost {
		s.Sensors = append(s.Sensors, &headroomv1.SensorStatus{Source: "hwmon", Name: strings.Repeat("x", i%scrape.LabelMost) + string(rune('a'+i%26)) + string(rune(0x100+i/26)), State: "ok"})
	}
	if n := len(values(gather(t, New("0.1.0", said(s), NewLoop())))); n > scrape.PointsMost {
		t.Errorf("%d points", n)
	}
}

func TestPageTellsEveryMetric(t *testing.T) {
	t.Parallel()
	families, err := processFamilies()
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range processMetrics() {
		listed[m.Name] = true
	}
	for _, f := range families {
		if !listed[f.GetName()] {
			t.Errorf("%s of the process collector is not in the page", f.GetName())
		}
	}
	for _, must := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes"} {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == must }) {
			t.Errorf("the process collector does not tell %s", must)
		}
	}
	page := Page()
	for _, m := range append(all(), processMetrics()...) {
		if strings.Count(page, "\n| `"+m.Name+"` | "+m.Kind+" |") != 1 {
			t.Errorf("the page does not have one line for %s", m.Name)
		}
	}
}

func processFamilies() ([]*dto.MetricFamily, error) {
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return own.Gather()
}

// golden compares with a file of testdata; UPDATE=1 writes it.
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
