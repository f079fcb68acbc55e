// Claims: a running powerd serves its own figures where metrics.listen says; what
// goes wrong with a control is counted under that control's name, a drift once
// however long it lasts, a write by why it did not hold; energy never goes back when
// a counter does; every health item that powerd can show is a listed one.
package agent

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/metrics"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/rpc"
	"headroom/internal/testkit/emulated"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/rapl"
	"headroom/systemd"
	"headroom/units"
)

// lines hands a log's lines to a test.
type lines chan string

// Write is one line of the log; what nobody waits for is dropped.
func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestAgentServesMetrics(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config()
	cfg.Metrics.Listen = "127.0.0.1:0"
	said := make(lines, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, slog.New(slog.NewTextHandler(said, nil))) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("powerd ended with %v", err)
		}
	}()
	address := regexp.MustCompile(`serving metrics.* address=(\S+)`)
	var addr string
	waitFor(t, "the address of the metrics", func() bool {
		select {
		case line := <-said:
			if m := address.FindStringSubmatch(line); m != nil {
				addr = m[1]
			}
		default:
		}
		return addr != ""
	})
	var text string
	waitFor(t, "package power and a turn of the loop in the metrics", func() bool {
		text = "\n" + scrape(t, addr)
		return strings.Contains(text, "\n"+`headroom_zone_power_watts{socket="0",zone="package-0"} `) &&
			!strings.Contains(text, "\nheadroom_control_step_duration_seconds_count 0\n")
	})
	for _, want := range []string{
		"headroom_node_cap_watts 95", `headroom_node_state{state="fail-safe"} 1`, `headroom_node_rung{rung="rapl"} 1`, "headroom_lease_expiries_total 0",
		`headroom_zone_limit_drift_total{zone="package-0"} 0`, `headroom_zone_write_errors_total{reason="not-taken",zone="package-0"} 0`,
		`headroom_build_info{goversion=`, "process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func scrape(t *testing.T, addr string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Get(rpc.BaseURL(addr) + metrics.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// told is a counter or gauge as a scrape of this moment would tell it.
func (n *node) told(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	own := prometheus.NewRegistry()
	own.MustRegister(metrics.New(Version, func() *headroomv1.GetAgentStatusResponse { return n.report.details(instant()) }, n.tally.loop))
	families, err := own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s%v", name, labels)
	return 0
}

const (
	driftTotal  = "headroom_zone_limit_drift_total"
	errorsTotal = "headroom_zone_write_errors_total"
)

// Another writer's value is one drift, however many turns it stands; the zone
// beside it has none.
func TestDriftIsCountedByZone(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config("127.0.0.1:1")
	cfg.Rivals = config.RivalsYield
	n := loopless(t, cfg)
	n.give(t, 1, 120*units.Watt, lease.Sprint{})
	n.spin(t, "the cap is held", func() bool { return n.control.caps.applied == 120*units.Watt && !n.control.caps.stepped })
	if got := n.told(t, driftTotal, "package-0"); got != 0 {
		t.Errorf("%v drifts before any", got)
	}
	l.write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "150000000")
	for range 3 {
		n.turn(instant())
	}
	if got := n.told(t, driftTotal, "package-0"); got != 1 || n.tally.counters.drifts != 1 {
		t.Errorf("%v drifts of package-0, %d in all, want 1", got, n.tally.counters.drifts)
	}
	now := instant().Boot
	n.tally.drift(now+3*period, "package-0", "package-0", period)
	n.tally.drift(now+3*period, "policy0", "policy0", period)
	n.tally.drift(now+5*period, "package-0", "package-0", period)
	if got := n.told(t, driftTotal, "package-0"); got != 2 || n.told(t, driftTotal, "policy0") != 1 || n.tally.counters.drifts != 3 {
		t.Errorf("%v drifts of package-0, %d in all: one that went away and came back is a second one", got, n.tally.counters.drifts)
	}
}

// A ceiling that the driver does not take is counted for its own policy.
func TestWriteErrorsAreCountedByPolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	n := loopless(t, l.config("127.0.0.1:1"))
	f := n.machine.Freq
	first := f.Set.Policies()[0].Name
	f.Report = dvfs.Report{
		{Policy: first, State: dvfs.Failed, Err: &dvfs.WriteError{Policy: first, Err: dvfs.ErrNotTaken}},
		{Policy: "policy98", State: dvfs.Drifted},
		{Policy: "policy99", State: dvfs.Held},
	}
	before := n.tally.counters.writeErrors
	n.tally.ceilingsWritten(f, f.Report.Err())
	if n.told(t, errorsTotal, "not-taken", first) != 1 || n.told(t, errorsTotal, "not-taken", "policy98") != 1 || n.tally.counters.writeErrors != before+2 {
		t.Errorf("%d errors more, want one of each policy that failed", n.tally.counters.writeErrors-before)
	}
	n.tally.ceilingsWritten(f, errors.New("no space left in the state directory"))
	if got := n.told(t, errorsTotal, "io", first); got != 1 {
		t.Errorf("%v errors of %s: a value that was not recorded is not written", got, first)
	}
}

// Limits that firmware has locked are counted as that, at the very start.
func TestLockedLimitsAreCounted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := lockedNode(t, l.config("127.0.0.1:1"))
	if got := n.told(t, errorsTotal, "locked", "package-0"); got != 1 {
		t.Errorf("%v writes of locked limits", got)
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want metrics.Reason
	}{
		{&rapl.LockedError{Err: &rapl.WriteError{Err: rapl.ErrNotTaken}}, metrics.Locked},
		{&rapl.WriteError{Err: rapl.ErrNotTaken}, metrics.NotTaken},
		{errors.Join(nil, machine.ErrNotLower), metrics.NotTaken},
		{ipmi.ErrLimitUnsafe, metrics.NotTaken},
		{fmt.Errorf("rapl: %w", rapl.ErrZeroLimit), metrics.Refused},
		{&rapl.WriteError{Err: &fs.PathError{Err: syscall.EACCES}}, metrics.Refused},
		{&dvfs.WriteError{Err: syscall.EINVAL}, metrics.Refused},
		{&systemd.RefusedError{Slice: "system.slice"}, metrics.Refused},
		{&rapl.WriteError{Err: syscall.EIO}, metrics.IO},
		{ipmi.ErrNoAnswer, metrics.IO},
		{syscall.ENOSPC, metrics.IO},
	} {
		if got := reasonOf(c.err); got != c.want {
			t.Errorf("%v counts as %s, want %s", c.err, got, c.want)
		}
	}
}

// The energy that is told goes on through a wrap and a reset of the counter.
func TestEnergyNeverGoesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	still := emulated.Start(t, emulated.Options{Dir: dir}) // its plant does not run
	l := &lab{t: t, node: still, dir: dir}
	const zone = "sys/class/powercap/intel-rapl:0"
	span := l.number(zone + "/max_energy_range_uj")
	l.write(zone+"/energy_uj", strconv.FormatInt(span-30_000_000, 10))
	n := loopless(t, l.config("127.0.0.1:1"))
	at, last := instant(), 0.0
	for _, c := range []struct {
		what  string
		count int64
		more  float64
	}{
		{"it counts", span - 10_000_000, 20},
		{"it wraps", 30_000_000, 40},
		{"it counts on", 80_000_000, 50},
		{"it was reset", 1_000_000, 0},
		{"it counts after the reset", 41_000_000, 40},
	} {
		l.write(zone+"/energy_uj", strconv.FormatInt(c.count, 10))
		at.Boot, at.Awake = at.Boot+time.Second, at.Awake+time.Second
		n.machine.Look(at)
		now := n.told(t, "headroom_zone_energy_joules_total", "0", "package-0")
		if now < last || now > last+c.more+1 || now < last+c.more-1 {
			t.Errorf("%s: %v J after %v J, want about %v J more", c.what, now, last, c.more)
		}
		last = now
	}
}

// Each code that the sources show is in the list that dashboards are made from.
func TestHealthItemsAreListed(t *testing.T) {
	t.Parallel()
	found := map[metrics.HealthItem]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			itemsIn(t, f, found)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		if !slices.Contains(metrics.HealthItems(), i) {
			t.Errorf("metrics.HealthItems does not list %+v", i)
		}
	}
	for _, i := range metrics.HealthItems() {
		if !found[i] {
			t.Errorf("metrics.HealthItems lists %+v, which nothing shows", i)
		}
	}
}

// itemsIn finds the calls health.Warn(bad, code, ...) and health.Fail(bad, code, ...).
func itemsIn(t *testing.T, f *ast.File, found map[metrics.HealthItem]bool) {
	t.Helper()
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		severity, shows := map[string]string{"Warn": status.Warn, "Fail": status.Fail}[method.Sel.Name]
		on := ""
		switch x := method.X.(type) {
		case *ast.SelectorExpr:
			on = x.Sel.Name
		case *ast.Ident:
			on = x.Name
		}
		if on == "health" && shows {
			found[metrics.HealthItem{Code: wordOf(t, call.Args[1]), Severity: severity}] = true
		}
		return true
	})
}

// wordOf is a string literal, or one of the constants that stand for one.
func wordOf(t *testing.T, e ast.Expr) string {
	t.Helper()
	switch x := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil {
			return s
		}
	case *ast.Ident:
		if s, ok := map[string]string{"noRungCode": noRungCode, "tuningDriftCode": tuningDriftCode}[x.Name]; ok {
			return s
		}
	}
	t.Errorf("%v is no word that a test can read: write the code of an item as it is", e)
	return ""
}
