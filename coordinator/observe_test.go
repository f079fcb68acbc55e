// Claims: every alarm is a health item of the metrics; what is wrong with a server is told alike by status, alarms,
// metrics and events; a leader and a follower each
// tell Prometheus what they know; the time above a budget is counted while the
// power is known, and only then; a missed tick leaves a recording, at most one a
// minute and so many on disk.
package coordinator

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/metrics"
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
	// "code", Fail and add(..., "code" in package alarms and leading; "member-..." and Code: "..." in members/health.go.
	forms := regexp.MustCompile(`"([a-z-]+)", (?:alarms\.)?(?:Fail|Warn)\b|"((?:member|gossip)-[a-z-]+)"|Code: "([a-z-]+)", Severity: "warn"`)
	found := map[string]bool{}
	for _, file := range []string{"alarms/alarms.go", "leading/known.go", "leading/jobs.go", "brakes/store.go", "brakes/watcher.go", "members/health.go"} {
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

// A server that is gone is in the status, among the alarms, in the metrics and in the events, as it is in the health
// of the servers; and its end is an event too.
func TestHealthIsTheSameEverywhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, 700*units.Watt)
		l := c.leader()
		c.seated("c1", "c2", "c3")
		time.Sleep(consensus.StableFor)
		away := slices.DeleteFunc([]string{"c1", "c2", "c3"}, func(id string) bool { return id == l.cfg.ID })[0]
		c.kill(away)
		time.Sleep(6 * time.Second)
		cluster := clusterService{c.leader().server}
		status, err := cluster.GetStatus(t.Context(), connect.NewRequest(&headroomv1.GetStatusRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		list, err := cluster.ListAlarms(t.Context(), connect.NewRequest(&headroomv1.ListAlarmsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var shown, listed []string
		for _, i := range status.Msg.GetAlarms() {
			shown = append(shown, i.GetSeverity()+" "+i.GetCode())
		}
		for _, a := range list.Msg.GetAlarms() {
			listed = append(listed, a.GetKey())
			if a.GetSinceUs() == 0 {
				t.Errorf("alarm %s has no begin", a.GetKey())
			}
		}
		if want := []string{"fail member-silent", "warn group-fragile"}; !slices.Equal(shown, want) {
			t.Errorf("status shows %q, want %q", shown, want)
		}
		if want := []string{"member-silent/" + away, "group-fragile/cluster"}; !slices.Equal(listed, want) {
			t.Errorf("alarms are %q, want %q", listed, want)
		}
		if got := toldBy(t, c.leader().server)["headroom_health"]; got["member-silent fail "] != 1 || got["group-fragile warn "] != 1 {
			t.Errorf("metrics tell %v", got)
		}
		c.start(away)
		time.Sleep(6 * time.Second)
		events, err := cluster.ListEvents(t.Context(), connect.NewRequest(&headroomv1.ListEventsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		var turns []string
		for _, e := range events.Msg.GetEvents() {
			if strings.HasPrefix(e.GetWhat(), "alarm member-silent/"+away) {
				turns = append(turns, e.GetWhat())
			}
		}
		if n := len(turns); n < 2 || !strings.HasSuffix(turns[n-2], "began") || !strings.HasSuffix(turns[n-1], "ended") {
			t.Errorf("events %q", turns)
		}
	})
}
