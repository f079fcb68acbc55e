// Claims: a heartbeat's absent fields stay unknown, and what no powerd says is not taken over.
package coordinator

import (
	"fmt"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// A heartbeat's absent fields stay unknown, and an amount that cannot be one does not become known.
func TestReportOf(t *testing.T) {
	t.Parallel()
	who := sightingOf(declared("n01"))
	r := reportOf(who, &headroomv1.Heartbeat{Number: 3})
	if r.EffectiveKnown || r.Power != nil || r.Demand != nil || r.Limited != nil {
		t.Errorf("nothing was said, known is %+v", r)
	}
	minus, zero := int64(-5), int64(0)
	r = reportOf(who, &headroomv1.Heartbeat{Number: 3, PowerUw: &minus, Holding: &headroomv1.Holding{EffectiveUw: &zero}})
	if r.EffectiveKnown || r.Power != nil {
		t.Errorf("nonsense is known: %+v", r)
	}
	if got := units.Power(declared("n01").GetRatedUw()); r.Rated != got {
		t.Errorf("rated %v, want %v", r.Rated, got)
	}
}

// What no powerd says is not taken over.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	for _, hb := range []*headroomv1.Heartbeat{
		{EnergyUj: new(int64(-1)), EnergyMs: -5, EnergyFrom: "a guess"},
		{EnergyMs: -1 << 63},
	} {
		if r := reportOf(sightingOf(declared("n01")), hb); r.Energy != nil || r.EnergyTime != 0 || r.EnergyFrom != "" {
			t.Errorf("%v is taken as %v, %v, %q", hb, r.Energy, r.EnergyTime, r.EnergyFrom)
		}
	}
	if got := milliseconds(1<<63 - 1); got <= 0 {
		t.Error("a long time is ", fmt.Sprint(got))
	}
}
