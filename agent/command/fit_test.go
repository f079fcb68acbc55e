// Claims: the fit finds other and efficiency from idle time and load, and gives the reason
// where it cannot; minimum and maximum are those of means over 1 s.
package command

import (
	"math"
	"strings"
	"testing"
	"time"

	"headroom/units"
)

func TestFit(t *testing.T) {
	t.Parallel()
	const other, efficiency, quarter = 22.0, 0.914, 250 * time.Millisecond
	hold := func(f *fit, w float64, d time.Duration, wall bool) {
		var bmc *units.Power
		if wall {
			bmc = powerOf((w + other) / efficiency)
		}
		for i := range int(d / quarter) {
			f.add(quarter, powerOf(w*(1+0.02*math.Sin(float64(i)))), bmc) // counters are noisy
		}
	}
	for name, c := range map[string]struct {
		run  func(*fit)
		says string
	}{
		"idle and load": {func(f *fit) { hold(f, 34, 40*time.Second, true); hold(f, 151, 40*time.Second, true) }, ""},
		"no load":       {func(f *fit) { hold(f, 34, 80*time.Second, true) }, "20.0 W are needed"},
		"short":         {func(f *fit) { hold(f, 34, 10*time.Second, true) }, "no steady power"},
		"never steady": {func(f *fit) {
			for i := range 20 {
				hold(f, 34+100*float64(i%2), 5*time.Second, true)
			}
		}, "no steady power"},
		"no BMC reading": {func(f *fit) { hold(f, 34, 40*time.Second, false) }, "no steady power"},
		"a BMC that does not follow": {func(f *fit) {
			for _, w := range []float64{34, 151} {
				for range 160 {
					f.add(quarter, powerOf(w), powerOf(61))
				}
			}
		}, "not plausible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fit{}
			c.run(f)
			got := f.result()
			if c.says != "" {
				if got.OtherW != nil || got.Efficiency != nil || !strings.Contains(got.Text, c.says) {
					t.Errorf("%+v, want none and %q", got, c.says)
				}
				return
			}
			if got.OtherW == nil || math.Abs(*got.OtherW-other) > 1 || math.Abs(*got.Efficiency-efficiency) > 0.01 {
				t.Errorf("%+v, want other %v and efficiency %v", got, other, efficiency)
			}
		})
	}
}

func TestRangeOf(t *testing.T) {
	t.Parallel()
	var r rangeOf
	for i := range 16 { // 0 and 40 W by turns in the first two seconds, 100 W in the last two
		w := float64(40 * (i % 2))
		if i >= 8 {
			w = 100
		}
		r.add(powerOf(w), 250*time.Millisecond)
	}
	r.add(nil, time.Second)
	if row := r.row("package"); *row.MinW != 20 || *row.MaxW != 100 || row.MeanW != 60 {
		t.Errorf("min %v, mean %v, max %v; want 20, 60, 100", *row.MinW, row.MeanW, *row.MaxW)
	}
}
