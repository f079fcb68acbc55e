// Claims: on a terminal a status fits the screen however many alarms there are, the worst first and nodes folded; what is
// not a terminal gets every alarm; a first status awaits readings and does not call power unknown.
package command

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	headroomv1 "headroom/api/headroom/v1"
)

// troubled is the status of a site with many alarms of many codes.
func troubled(codes, nodes int) *headroomv1.GetStatusResponse {
	r := &headroomv1.GetStatusResponse{
		Meta: &headroomv1.Meta{Epoch: &headroomv1.Epoch{Term: 7}, Revision: 4182}, NodesOk: 58, NodesLost: 2, Leader: "c2", UnratedDomains: []string{"rack/r1"},
		Site: &headroomv1.Domain{
			Name: "site/lab", BudgetUw: 12_000e6, ReservedUw: 11_950e6, UnmanagedUw: 240e6, HeadroomUw: -190e6,
			PowerKnownUw: new(int64(2_565e6)), PowerUnknownNodes: new(uint32(3)),
		},
		Servers: []*headroomv1.Member{{Id: "c1", Role: "follower", Voter: true}, {Id: "c2", Role: "leader", Voter: true}, {Id: "c3", Role: roleAway, Voter: true}},
	}
	add := func(code, severity, subject, text string) {
		r.Alarms = append(r.Alarms, &headroomv1.HealthItem{Code: code, Severity: severity, Subject: subject, Text: text, Hint: "coordinator node list shows what to do about " + code})
	}
	add("domain-lost", "fail", "rack/r1", "all 60 nodes of rack/r1 are lost, charged 11400.0 W: n[01-60]")
	for c := range codes {
		for n := range nodes {
			name := fmt.Sprintf("n%03d", n+1)
			add(fmt.Sprintf("code-%02d", c), "warn", name, name+" reports no power; the power of its domains is a lower bound")
		}
	}
	return r
}

func TestStatusFitsTheScreen(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ cols, rows, codes, nodes int }{
		{80, 24, 0, 0}, {80, 24, 1, 1}, {80, 24, 3, 200}, {80, 24, 40, 500}, {120, 30, 40, 3}, {200, 24, 12, 60}, {60, 20, 40, 60},
	} {
		s := &screen{cols: x.cols, rows: x.rows}
		if err := (&operator{}).statusTable(s, troubled(x.codes, x.nodes)); err != nil {
			t.Fatal(err)
		}
		text := s.String()
		if n := strings.Count(text, "\n"); n >= x.rows {
			t.Errorf("%+v: %d lines:\n%s", x, n, text)
		}
		for line := range strings.Lines(text) {
			if utf8.RuneCountInString(strings.TrimSpace(line)) > x.cols {
				t.Errorf("%+v: wider than the screen: %q", x, line)
			}
		}
		for _, must := range []string{"BUDGET", "12000.0 W", "-190.0 W", "c3 unreachable", fmt.Sprintf("1 failed, %d warning", x.codes*x.nodes), "FAIL  domain-lost"} {
			if !strings.Contains(text, must) {
				t.Errorf("%+v: no %q in\n%s", x, must, text)
			}
		}
		golden(t, fmt.Sprintf("testdata/status-%dx%d-%d.txt", x.cols, x.rows, x.codes), text)
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
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%s differs (UPDATE=1 go test writes it anew): %v; got:\n%s", path, err, got)
	}
}

func TestStatusOffATerminalIsWhole(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := (&operator{}).statusTable(&b, troubled(40, 60)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "alarm:   "); n != 40*60+1 {
		t.Errorf("%d alarms, want all %d", n, 40*60+1)
	}
}

func TestFirstReadingsAreAwaited(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]*headroomv1.Domain{
		"awaiting 2 readings":                {PowerUnknownNodes: new(uint32(2)), PowerAwaitedNodes: 2},
		"90.0 W + awaiting 1 reading":        {PowerKnownUw: new(int64(90e6)), PowerUnknownNodes: new(uint32(1)), PowerAwaitedNodes: 1},
		"1 node unknown, awaiting 1 reading": {PowerUnknownNodes: new(uint32(2)), PowerAwaitedNodes: 1},
		"2 nodes unknown":                    {PowerUnknownNodes: new(uint32(2))},
	} {
		if got := powerText(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r := &headroomv1.GetStatusResponse{NodesUnknown: 3, Site: &headroomv1.Domain{PowerUnknownNodes: new(uint32(3)), PowerAwaitedNodes: 3}}
	if got := nodesText(r); got != "3 awaited" {
		t.Errorf("nodes %q", got)
	}
	r.Site.PowerUnknownNodes = nil // a follower
	if got := nodesText(r); got != "3 unknown" {
		t.Errorf("nodes %q", got)
	}
}
