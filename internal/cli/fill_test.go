// Claims: a struct is filled in base units, with null for what is not set and lists that
// are never null; a field that no message has is a mistake that shows at once.
package cli

import (
	"encoding/json"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
)

type stampDoc struct {
	Term *uint64 `json:"term" of:"stamp.epoch.term"`
	Seq  uint64  `json:"seq" of:"stamp.seq"`
}

type nodeDoc struct {
	Kind    string            `json:"kind" of:"-"`
	Name    string            `json:"name"`
	CapW    float64           `json:"cap_w" of:"target_uw"`
	PowerW  *float64          `json:"power_w"`
	HeardS  *float64          `json:"heard_s"`
	Weight  float64           `json:"weight"`
	Rung    *string           `json:"rung"`
	Labels  map[string]string `json:"labels" of:"settings.labels"`
	Lease   stampDoc          `json:"lease" of:"."`
	Sprint  *sprintDoc        `json:"sprint"`
	Health  []itemDoc         `json:"health"`
	BackAt  *string           `json:"-" of:"-"`
	Limited *float64          `json:"limited_ratio,omitempty"`
}

type sprintDoc struct {
	EscrowJ float64 `json:"escrow_j"`
}

type itemDoc struct {
	Code string `json:"code"`
}

func shown(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFill(t *testing.T) {
	t.Parallel()
	empty := `{"kind":"Node","name":"","cap_w":0,"power_w":null,"heard_s":null,"weight":0,"rung":null,"labels":{},"lease":{"term":null,"seq":0},"sprint":null,"health":[]}`
	full := `{"kind":"Node","name":"n01","cap_w":190.5,"power_w":0,"heard_s":0.25,"weight":2,"rung":"rapl","labels":{"rack":"r1"},` +
		`"lease":{"term":3,"seq":7},"sprint":{"escrow_j":1.5},"health":[{"code":"bmc"}],"limited_ratio":0.1}`
	for want, m := range map[string]*headroomv1.Node{
		empty: {},
		full: {
			Name: "n01", TargetUw: new(int64(190_500_000)), PowerUw: new(int64(0)), HeardMs: new(int64(250)), Weight: 2, Rung: "rapl", LimitedRatio: new(0.1),
			Settings: &headroomv1.NodeSettings{Labels: map[string]string{"rack": "r1"}}, Stamp: &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Term: 3}, Seq: 7},
			Sprint: &headroomv1.Sprint{EscrowUj: 1_500_000}, Health: []*headroomv1.HealthItem{{Code: "bmc"}},
		},
	} {
		d := nodeDoc{Kind: "Node"}
		Fill(&d, m)
		if got := shown(t, d); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	type times struct {
		At   string  `json:"at"`
		Ends *string `json:"ends" of:"at_us"`
	}
	if got := shown(t, Filled[times]([]*headroomv1.Event{{AtUs: 1_500_000}, {}})); got != `[{"at":"1970-01-01T00:00:01.5Z","ends":"1970-01-01T00:00:01.5Z"},{"at":"1970-01-01T00:00:00Z","ends":null}]` {
		t.Error(got)
	}
	if got := shown(t, Filled[times]([]*headroomv1.Event(nil))); got != "[]" {
		t.Error(got)
	}
	type hertz struct {
		MaxHz *float64 `json:"max_hz"`
		TempC *float64 `json:"temp_c" of:"-"`
	}
	if got := shown(t, Filled[hertz]([]*headroomv1.PolicyStatus{{MaxKhz: new(int64(2_400_000))}})); got != `[{"max_hz":2400000000,"temp_c":null}]` {
		t.Error(got)
	}
}

func TestFillWithoutSource(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a field without a source is filled")
		}
	}()
	var d struct {
		Colour string `json:"colour"`
	}
	Fill(&d, &headroomv1.Node{})
}
