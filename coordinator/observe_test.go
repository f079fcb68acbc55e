// Claims: every alarm is a health item of the metrics; a leader and a follower each
// tell Prometheus what they know; the time above a budget is counted while the
// power is known, and only then; a missed tick leaves a recording, at most one a
// minute and so many on disk.
package coordinator

import (
	"log/slog"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"headroom/coordinator/view"

	dto "github.com/prometheus/client_model/go"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/metrics"
	"headroom/internal/scrape"
	"headroom/units"
)

// toldBy is a scrape of a server, by metric, with the labels in a row.
func toldBy(t *testing.T, s *server) map[string]map[string]float64 {
	t.Helper()
	families, err := s.told.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]float64{}
	for _, f := range families {
		out[f.GetName()] = pointsOf(f)
	}
	return out
}

func pointsOf(f *dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f.GetMetric() {
		key := ""
		for _, l := range m.GetLabel() {
			key += l.GetValue() + " "
		}
		out[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return out
}

// An alarm that the list of metrics does not know is absent while all is well, and
// a rule on it would never fire.
func TestEveryAlarmIsAMetric(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, i := range metrics.HealthItems() {
		listed[i.Code] = true
	}
	// "code", Fail and add(..., "code" in alarms.go and own_alarms.go; "member-..." and Code: "..." in member_health.go.
	forms := regexp.MustCompile(`"([a-z-]+)", (?:alarms\.)?(?:Fail|Warn)\b|"((?:member|gossip)-[a-z-]+)"|Code: "([a-z-]+)", Severity: "warn"`)
	found := map[string]bool{}
	for _, file := range []string{"alarms/alarms.go", "own_alarms.go", "brake.go", "member_health.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range forms.FindAllStringSubmatch(string(src), -1) {
			found[m[1]+m[2]+m[3]] = true
		}
	}
	for code := range found {
		if !listed[code] {
			t.Errorf("alarm %s is not in metrics.HealthItems", code)
		}
	}
	for code := range listed {
		if !found[code] {
			t.Errorf("%s of metrics.HealthItems is no alarm", code)
		}
	}
}

func TestALeaderAndAFollowerTellWhatTheyKnow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		c.addNodes(2)
		c.leader()
		c.allHeld(6 * time.Second)
		time.Sleep(5 * time.Second)
		l := c.leader()
		var follower *running
		for _, id := range c.ids {
			if s := c.server(id); s != l {
				follower = s
			}
		}
		lead, follow := toldBy(t, l.server), toldBy(t, follower.server)
		for name, want := range map[string]float64{"headroom_leader": 1, "headroom_ticks_missed_total": 0, "headroom_leader_changes_total": 0} {
			if got, ok := lead[name][""]; !ok || got != want {
				t.Errorf("the leader tells %s %v (there: %v), want %v", name, got, ok, want)
			}
		}
		if got := lead["headroom_nodes"]["ok "]; got != 2 {
			t.Errorf("%v nodes are ok, want 2", got)
		}
		for _, counted := range []string{"headroom_grant_latency_seconds", "headroom_commit_duration_seconds", "headroom_apply_duration_seconds"} {
			if lead[counted][""] == 0 {
				t.Errorf("%s has counted nothing", counted)
			}
		}
		if len(lead["headroom_member_lag_entries"]) != 3 || lead["headroom_policy_step_duration_seconds"]["weighted "] == 0 || lead["headroom_grants_total"]["granted "] == 0 {
			t.Errorf("lag %v, plans %v, grants %v", lead["headroom_member_lag_entries"], lead["headroom_policy_step_duration_seconds"], lead["headroom_grants_total"])
		}
		if follow["headroom_leader"][""] != 0 || follow["headroom_budget_watts"]["site/lab "] != 700 || follow["headroom_apply_duration_seconds"][""] == 0 {
			t.Errorf("a follower tells leader %v, budgets %v", follow["headroom_leader"], follow["headroom_budget_watts"])
		}
		for _, unknown := range []string{"headroom_nodes", "headroom_member_lag_entries", "headroom_measured_watts", "headroom_log_bytes"} {
			if points, ok := follow[unknown]; ok {
				t.Errorf("a follower tells %s %v", unknown, points)
			}
		}
	})
}

// Time counts while measured power is known and above what the budget leaves it,
// and a long gap counts as far as a measurement is believed.
func TestTimeAboveTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(Config{ID: "c1"}, slog.New(slog.DiscardHandler))
		d := &desk{began: time.Now(), counts: s.counts}
		uw := func(w int64) *int64 { w *= 1_000_000; return &w }
		over := &headroomv1.Domain{Name: "metered", BudgetUw: *uw(100), UnmanagedUw: *uw(30), MeasuredUw: uw(110), MeasuredBy: "pdu-7"}
		nodes := &headroomv1.Domain{Name: "nodes", BudgetUw: *uw(100), UnmanagedUw: *uw(30), MeasuredUw: uw(80), MeasuredBy: view.MeasuredByNodes}
		below := &headroomv1.Domain{Name: "below", BudgetUw: *uw(100), MeasuredUw: uw(100), MeasuredBy: "pdu-8"}
		unknown := &headroomv1.Domain{Name: "unknown", BudgetUw: *uw(100), HeadroomUw: -1}
		all := []*headroomv1.Domain{over, nodes, below, unknown}
		time.Sleep(2 * time.Second)
		d.watchBudgets(all)
		time.Sleep(time.Hour)
		d.watchBudgets(all)
		c := metrics.New("0", func() *metrics.View { return &metrics.View{Domains: all} }, s.counts)
		s.told = scrape.Gatherer(c)
		got := toldBy(t, s)
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
	})
}

// A tick two seconds after the one before is late, not missed; the first is neither.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	s := newServer(Config{ID: "c1"}, slog.New(slog.DiscardHandler))
	d := s.newDesk(1)
	missed := 0
	d.missed = func() { missed++ }
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
	if got := toldBy(t, s)["headroom_ticks_missed_total"][""]; got != 2 {
		t.Errorf("%v missed ticks counted, want 2", got)
	}
}
