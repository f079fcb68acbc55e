// Claims: the time above a budget is counted by the known power, with unknown nodes too; a tick
// that comes too late is counted and asks for a recording.
package leading

import (
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/metrics"
	"headroom/internal/scrape"
)

// counted is what counters tell Prometheus, by metric, with the labels in a row.
func counted(t *testing.T, counts *metrics.Counts, domains []*headroomv1.Domain) map[string]map[string]float64 {
	t.Helper()
	families, err := scrape.Gatherer(metrics.New("0", func() *metrics.View { return &metrics.View{Domains: domains} }, counts)).Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = map[string]float64{}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += l.GetValue() + " "
			}
			out[f.GetName()][key] = m.GetCounter().GetValue()
		}
	}
	return out
}

// Time counts while the known power is above what the budget leaves it, even if a node is
// unknown, and a long gap counts up to the age at which a measurement expires.
func TestTimeAboveTheBudget(t *testing.T) {
	t.Parallel()
	counts := metrics.NewCounts()
	b := budgetWatch{counts: counts}
	uw := func(w int64) *int64 { w *= 1_000_000; return &w }
	over := &headroomv1.Domain{Name: "metered", BudgetUw: *uw(100), UnmanagedUw: *uw(30), PowerKnownUw: uw(110), MeasuredBy: "pdu-7"}
	nodes := &headroomv1.Domain{Name: "nodes", BudgetUw: *uw(100), UnmanagedUw: *uw(30), UnmeteredUw: *uw(30), PowerKnownUw: uw(80), PowerUnknownNodes: new(uint32(1))}
	below := &headroomv1.Domain{Name: "below", BudgetUw: *uw(100), PowerKnownUw: uw(100), MeasuredBy: "pdu-8"}
	unknown := &headroomv1.Domain{Name: "unknown", BudgetUw: *uw(100), HeadroomUw: -1}
	all := []*headroomv1.Domain{over, nodes, below, unknown}
	b.look(all, 2*time.Second)
	b.look(all, 2*time.Second+time.Hour)
	got := counted(t, counts, all)
	for name, want := range map[string]map[string]float64{
		"headroom_budget_violation_seconds_total": {"metered ": 5, "nodes ": 5, "below ": 0, "unknown ": 0},
		"headroom_budget_violation_joules_total":  {"metered ": 50, "nodes ": 50, "below ": 0, "unknown ": 0},
		"headroom_budget_shortfall_seconds_total": {"metered ": 0, "nodes ": 0, "below ": 0, "unknown ": 5},
	} {
		for domain, v := range want {
			if got[name][domain] != v {
				t.Errorf("%s of %s is %v, want %v", name, domain, got[name][domain], v)
			}
		}
	}
}

// A tick two seconds after the one before is late, not missed; the first is neither.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	c := testConfig(nil, nil, nil, nil)
	missed := 0
	c.Missed = func() { missed++ }
	d := New(c)
	for _, x := range []struct{ ticked, now time.Duration }{{0, time.Hour}, {time.Second, 3 * time.Second}, {time.Second, 2 * time.Second}} {
		d.punctual(x.ticked, x.now)
	}
	if missed != 0 {
		t.Errorf("%d ticks missed", missed)
	}
	d.punctual(time.Second, 3*time.Second+1)
	d.punctual(time.Second, 9*time.Second)
	if missed != 2 {
		t.Errorf("a recording was asked for %d times, want 2", missed)
	}
	if got := counted(t, c.Counts, nil)["headroom_ticks_missed_total"][""]; got != 2 {
		t.Errorf("%v missed ticks counted, want 2", got)
	}
}
