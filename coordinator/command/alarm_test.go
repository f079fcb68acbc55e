// Claims: check prints each alarm with its state, a summary with right plurals, and ends with the code of the worst; for Nagios
// a cluster without a leader is CRITICAL, with a line on stdout, and whatever else fails is UNKNOWN.
package command

import (
	"errors"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

func TestCheckReports(t *testing.T) {
	t.Parallel()
	warn := &headroomv1.Alarm{Key: "node-lost/n03", Item: &headroomv1.HealthItem{Code: "node-lost", Severity: "warn", Text: "n03 is lost"}}
	fail := &headroomv1.Alarm{Key: "shortfall/site/lab", Item: &headroomv1.HealthItem{Code: "shortfall", Severity: "fail", Text: "site/lab is short"}}
	for name, c := range map[string]struct {
		alarms []*headroomv1.Alarm
		nagios bool
		exit   int
		want   string
	}{
		"healthy":          {nil, false, cli.ExitOK, "0 failed, 0 warnings, leader c1\n"},
		"a warning":        {[]*headroomv1.Alarm{warn}, false, cli.ExitDegraded, "warn  node-lost/n03: n03 is lost\n0 failed, 1 warning, leader c1\n"},
		"a failure":        {[]*headroomv1.Alarm{fail, warn}, false, cli.ExitFailed, "FAIL  shortfall/site/lab: site/lab is short\nwarn  node-lost/n03: n03 is lost\n1 failed, 1 warning, leader c1\n"},
		"Nagios, healthy":  {nil, true, cli.ExitOK, "OK: 0 failed, 0 warnings, leader c1\n"},
		"Nagios, warning":  {[]*headroomv1.Alarm{warn}, true, nagiosWarning, "WARNING: 0 failed, 1 warning, leader c1\nwarn  node-lost/n03: n03 is lost\n"},
		"Nagios, critical": {[]*headroomv1.Alarm{fail}, true, nagiosCritical, "CRITICAL: 1 failed, 0 warnings, leader c1\nFAIL  shortfall/site/lab: site/lab is short\n"},
	} {
		var out strings.Builder
		err := newCheck(&headroomv1.ListAlarmsResponse{Meta: &headroomv1.Meta{Server: "c1"}, Alarms: c.alarms}).report(&out, c.nagios)
		if e, ok := errors.AsType[*cli.Error](err); out.String() != c.want || ok != (c.exit != cli.ExitOK) || ok && e.Exit != c.exit {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

func TestNagiosWithoutLeader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		exit int
		want string
	}{
		"no leader":   {rpc.AsCLI(rpc.NotLeader("", ""), "check", "c1:7500"), nagiosCritical, "CRITICAL: no leader\n"},
		"not allowed": {&cli.Error{Code: "denied", Exit: cli.ExitDenied, Message: "check: permission denied"}, nagiosUnknown, "UNKNOWN: permission denied\n"},
	} {
		var out strings.Builder
		e, ok := errors.AsType[*cli.Error](nagiosFailed(&out, c.err))
		if !ok || e.Exit != c.exit || out.String() != c.want {
			t.Errorf("%s: %v %q", name, e, out.String())
		}
	}
}

// One lost node leaves the rest of the power to be seen.
func TestPowerText(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]*headroomv1.Domain{
		"244.0 W":                  {MeasuredUw: new(int64(244e6)), PowerKnownUw: new(int64(244e6)), PowerUnknownNodes: new(uint32(0))},
		"122.0 W + 1 node unknown": {PowerKnownUw: new(int64(122e6)), PowerUnknownNodes: new(uint32(1))},
		"2 nodes unknown":          {PowerUnknownNodes: new(uint32(2))},
		"-":                        {},
	} {
		if got := powerText(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An account of a node has everything that its one row lacks, and what to do.
func TestNodeAccount(t *testing.T) {
	t.Parallel()
	n := &headroomv1.Node{
		Name: "n01", Domain: "rack/r1", State: "ok", StateSinceUs: new(int64(1)), TargetUw: new(int64(150e6)), ChargeUw: 170e6, CeilingUw: 160e6, PowerUw: new(int64(120e6)),
		LeaseMs: new(int64(4100)), LastDriftUs: new(int64(1)), CertificateEndsUs: new(time.Now().Add(100 * time.Hour).UnixMicro()), HeardMs: new(int64(300)),
	}
	drift := &headroomv1.Alarm{Subject: "n01", Item: &headroomv1.HealthItem{Code: "limit-drift", Severity: "warn", Text: "n01: package-0 holds 70.0 W", Hint: "stop the other writer"}}
	other := &headroomv1.Alarm{Subject: "n02", Item: &headroomv1.HealthItem{Code: "node-lost", Severity: "warn", Text: "n02 is lost"}}
	var out strings.Builder
	if err := (&operator{}).nodeAccounts(&out, []*headroomv1.Node{n}, []*headroomv1.Alarm{drift, other}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok since 1970", "170.0 W", "ceiling 160.0 W", "80 % of its cap", "ends in 4.1s", "last drift", "expires in 4d03h", "warn limit-drift", "stop the other writer", "last report 0.3s ago"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "n02") {
		t.Errorf("another node's alarm in\n%s", out.String())
	}
}
