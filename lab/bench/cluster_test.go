// Claims: `bench cluster` in small measures every figure with real coordinators and
// real exchanges, prints exactly the fields that it promises, and ends what it
// starts; without the programs its figures are null, with the reason; the nodes'
// book integrates what they hold above a budget, and knows who follows which
// leader; the log's size is what was written, not what was reserved; etcd's messages
// are what etcd's own description says. No timing is asserted.
package bench

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/internal/testkit"
	"headroom/lease"
	"headroom/units"
)

// clusterFields are the fields of -o json, and of which the figure is p50 and p99.
func clusterFields() map[string]bool {
	return map[string]bool{
		"nodes": false, "exchange_s": true, "cpu_per_node_s_per_s": false, "budget_cut_s": true, "failover_s": true,
		"failover_over_budget_ws": false, "log_bytes_per_s": false, "plan_10000_s": true, "tick_10000_s": true, "etcd_ratio": false,
	}
}

func TestClusterSmall(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(bin, "coordinator")); err != nil {
		testkit.NotRun(t, "no program coordinator in bin/; make build")
	}
	exit, out, errs := execute(t, "cluster", "--bin", bin, "--nodes", "20", "--duration", "2s", "--cuts", "2", "--kills", "1", "--gossip", "5", "-o", "json")
	if exit != cli.ExitOK {
		t.Fatalf("exit %d, %s", exit, errs)
	}
	got := figuresOf(t, out)
	for name, v := range got {
		if name == "etcd_ratio" {
			continue
		}
		for _, x := range flatten(v) {
			if f, ok := x.(float64); !ok || f < 0 || f == 0 && name != "failover_over_budget_ws" {
				t.Errorf("%s is %v", name, v)
			}
		}
	}
	if got["nodes"] != 20.0 {
		t.Errorf("nodes %v", got["nodes"])
	}
	if !strings.Contains(errs, "noise: ") || !strings.Contains(errs, "machine: ") || !strings.Contains(errs, "member of 5") {
		t.Errorf("stderr tells no machine, noise or gossip: %s", errs)
	}
	checkRatios(t, got["etcd_ratio"], errs)
}

// figuresOf checks that the fields are all there, and no other.
func figuresOf(t *testing.T, out string) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := clusterFields()
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		t.Errorf("fields %v, want %v", a, b)
	}
	for name, spread := range want {
		m, ok := got[name].(map[string]any)
		if spread && (!ok || !slices.Equal(slices.Sorted(maps.Keys(m)), []string{"p50", "p99"})) {
			t.Errorf("%s is %v, want p50 and p99", name, got[name])
		}
	}
	return got
}

func flatten(v any) []any {
	if m, ok := v.(map[string]any); ok {
		return slices.Collect(maps.Values(m))
	}
	return []any{v}
}

// checkRatios wants the four ratios, or none and the reason.
func checkRatios(t *testing.T, value any, errs string) {
	t.Helper()
	ratios, ok := value.(map[string]any)
	if !ok {
		t.Fatalf("etcd_ratio is %v, want an object", value)
	}
	if _, err := findEtcd(); err != nil {
		if len(ratios) != 0 || !strings.Contains(errs, "not run: etcd is not installed (apt-get install etcd-server)") {
			t.Errorf("without etcd: %v, %s", ratios, errs)
		}
		testkit.NotRun(t, "the ratios to etcd: "+err.Error())
	}
	if names := slices.Sorted(maps.Keys(ratios)); !slices.Equal(names, []string{"cpu_per_node", "exchange_p50", "exchange_p99", "log_bytes"}) {
		t.Errorf("ratios %v", names)
	}
	for name, v := range ratios {
		if f, ok := v.(float64); !ok || f <= 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}

func TestClusterUnknownIsNull(t *testing.T) {
	t.Parallel()
	exit, out, errs := execute(t, "cluster", "--bin", t.TempDir(), "--nodes", "4", "--duration", "1s", "--gossip", "3", "--no-etcd", "-o", "json")
	if exit != cli.ExitDegraded || !strings.Contains(errs, "not measured: cluster") || !strings.Contains(errs, "make build") {
		t.Errorf("exit %d, %s", exit, errs)
	}
	got := figuresOf(t, out)
	for _, name := range []string{"exchange_s", "cpu_per_node_s_per_s", "budget_cut_s", "failover_s", "failover_over_budget_ws", "log_bytes_per_s"} {
		for _, x := range flatten(got[name]) {
			if x != nil {
				t.Errorf("%s is %v, want null", name, got[name])
			}
		}
	}
	if ratios, ok := got["etcd_ratio"].(map[string]any); !ok || len(ratios) != 0 {
		t.Errorf("etcd_ratio is %v, want an empty object", got["etcd_ratio"])
	}
	for _, bad := range [][]string{{"--nodes", "0"}, {"--duration", "1ms"}, {"--kills", "0"}, {"--gossip", "2"}} {
		if exit, _, _ := execute(t, append([]string{"cluster"}, bad...)...); exit != cli.ExitUsage {
			t.Errorf("%v: exit %d", bad, exit)
		}
	}
}

func TestBook(t *testing.T) {
	t.Parallel()
	b := newBook(2)
	at := time.Now().Add(time.Hour) // guard looks at the clock: everything here comes after
	after := func(s float64) time.Time { return at.Add(time.Duration(s * float64(time.Second))) }
	one, two := lease.Epoch{Incarnation: 1, Term: 1}, lease.Epoch{Incarnation: 1, Term: 2}
	stands := func(node int, watts units.Power, e lease.Epoch, seconds float64) {
		b.stands(node, standing{cap: watts * units.Watt, held: watts > 80, stamp: lease.Stamp{Epoch: e, Seq: 1}}, after(seconds))
	}
	b.budget = 200 * units.Watt
	stands(0, 150, one, 0)
	stands(1, 120, one, 1) // 270 W from here on: 70 above
	stands(0, 100, two, 3) // 220 W: 20 above
	stands(1, 80, one, 5)  // 180 W, its lease has ended
	stands(0, 100, two, 9)
	if want := 70*2 + 20*2.0; math.Abs(b.over-want) > 1e-6 {
		t.Errorf("%v W s above the budget, want %v", b.over, want)
	}
	if sum, held, fell := b.holds(); sum != 180*units.Watt || held != 1 || fell != 1 || b.newest() != two {
		t.Errorf("holds %v, %d held, %d fell, epoch %v", sum, held, fell, b.newest())
	}
	if first, _, all := b.reigned(one); all || first != after(3) {
		t.Errorf("the second epoch from %v, everybody %v", first, all)
	}
	stands(1, 90, two, 10)
	if first, last, all := b.reigned(one); !all || first != after(3) || last != after(10) {
		t.Errorf("the second epoch from %v to %v, everybody %v", first, last, all)
	}
	if _, _, all := b.reigned(two); all {
		t.Error("nobody has a lease of a third epoch")
	}
}

func TestLogBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"a.wal":     append(bytes.Repeat([]byte{7}, 1000), make([]byte, 1<<20)...),
		"sub/b.wal": append(append(make([]byte, 300_000), 1), make([]byte, 10)...),
		"c.wal":     make([]byte, 4096),
		"d.wal":     {},
		"e.tmp":     bytes.Repeat([]byte{7}, 1000),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := logBytes(dir); n != 1000+300_001 || err != nil {
		t.Errorf("%d bytes, %v; want 301001", n, err)
	}
}

// The bytes are those of protoc for etcd's rpc.proto.
func TestEtcdMessages(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]*message{
		"\x08\x0a\x10\x05": grantRequest(5, 10),
		"\x08\x05":         keepAliveRequest(5),
		"\x0a\x09\x08\x01\x10\x00\x1a\x01k\x20\x00\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x05\x12\x05\x0a\x03\x0a\x01k": txnRequest(
			existsCompare("k"), putOp("k", []byte("v"), 5), rangeOp("k")),
	} {
		if string(got.data) != want {
			t.Errorf("%q, want %q", got.data, want)
		}
	}
	m := &message{[]byte("\x0a\x02xx\x10\x01")} // TxnResponse{header, succeeded}
	if v, ok := m.field(2); v != 1 || !ok {
		t.Errorf("succeeded is %v, %v", v, ok)
	}
	for _, bad := range []string{"", "\x0a\x09x", "\x10", "\xff"} {
		if v, ok := (&message{[]byte(bad)}).field(2); ok {
			t.Errorf("%q has field 2: %v", bad, v)
		}
	}
}
