package plant_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Limits round as intel_rapl_common rounds them (values read on Linux 6.1).
func TestKernelLimitRounding(t *testing.T) {
	t.Parallel()
	for written, held := range map[units.Power]units.Power{
		25_060_000:     25_000_000,
		185_000_000:    185_000_000,
		124_999:        0,
		0:              0,
		99_999_999_999: 1_695_875_000,
		-1:             0,
	} {
		if got := plant.RoundLimit(written); got != held {
			t.Errorf("%d uW became %d, want %d", written, got, held)
		}
	}
}

// Windows round as intel_rapl_common rounds them (values read on Linux 6.1).
func TestKernelWindowRounding(t *testing.T) {
	t.Parallel()
	for written, held := range map[time.Duration]time.Duration{
		500_000 * time.Microsecond:   499_712 * time.Microsecond,
		1_000_000 * time.Microsecond: 999_424 * time.Microsecond,
		2440 * time.Microsecond:      1952 * time.Microsecond, // firmware's own 2440 cannot be written back
		0:                            976 * time.Microsecond,
		-time.Second:                 976 * time.Microsecond,
	} {
		if got := plant.RoundWindow(written); got != held {
			t.Errorf("%v became %v, want %v", written, got, held)
		}
	}
}

// What the hardware holds is never above what was written, and holds when it is
// written again.
func TestRoundingIsDownAndIdempotent(t *testing.T) {
	t.Parallel()
	spec := plant.DefaultSpec()
	rapid.Check(t, func(t *rapid.T) {
		p := units.Power(rapid.Int64Range(0, 4_000_000_000).Draw(t, "limit"))
		if r := plant.RoundLimit(p); r > p || p-r >= units.Watt/8 || plant.RoundLimit(r) != r {
			t.Fatalf("limit %d became %d, then %d", p, r, plant.RoundLimit(r))
		}
		d := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(1000*time.Hour)).Draw(t, "window"))
		if r := plant.RoundWindow(d); r > d || plant.RoundWindow(r) != r {
			t.Fatalf("window %v became %v, then %v", d, r, plant.RoundWindow(r))
		}
		f := units.Freq(rapid.Int64Range(800_000, 5_000_000).Draw(t, "freq"))
		if r := spec.RoundFreq(f); r > f || spec.RoundFreq(r) != r || r < spec.FreqMin {
			t.Fatalf("ceiling %d became %d", f, r)
		}
	})
	if got := spec.RoundFreq(2_050_000); got != 2_000_000 {
		t.Errorf("2050000 kHz became %d", got)
	}
	if got := spec.RoundFreq(1); got != spec.FreqMin {
		t.Errorf("1 kHz became %d", got)
	}
	ladder := spec.Frequencies()
	if len(ladder) != 27 || ladder[0] != spec.FreqMax || ladder[26] != spec.FreqMin {
		t.Errorf("ladder %v", ladder)
	}
}
