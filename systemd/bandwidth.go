package systemd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bandwidth is CPU time per second of wall time, in microseconds: 1,500,000 is one
// CPU and a half. The bigger, the more; Unlimited is the biggest.
type Bandwidth int64

const (
	// CPU is the whole of one CPU.
	CPU Bandwidth = 1_000_000
	// BandwidthGrain is a percent of one CPU. A bound is a multiple of it: systemd
	// keeps whole percents in the files that it reads again on a reload.
	BandwidthGrain = CPU / 100
	// BandwidthMin is the least that a slice is left with; the kernel takes no less
	// in its usual period (1 ms in 100 ms).
	BandwidthMin = BandwidthGrain
	// Unlimited is no bound at all; systemd says "infinity", the kernel "max".
	Unlimited Bandwidth = math.MaxInt64
)

// bandwidthMax is the most that counts as a bound: far beyond any machine, and safe
// to multiply by a period.
const bandwidthMax = 1_000_000 * CPU

// CPUs is n CPUs' worth, rounded down to a grain; not a number is BandwidthMin.
func CPUs(n float64) Bandwidth {
	switch {
	case n >= bandwidthMax.CPUs():
		return Unlimited
	case n > 0:
		return max(BandwidthMin, Bandwidth(n*float64(CPU)).grained())
	}
	return BandwidthMin
}

// CPUs is the bandwidth in CPUs, infinite when it is Unlimited.
func (b Bandwidth) CPUs() float64 {
	if b == Unlimited {
		return math.Inf(1)
	}
	return float64(b) / float64(CPU)
}

// String is for operators: "1.50 CPUs", "unlimited".
func (b Bandwidth) String() string {
	if b == Unlimited {
		return "unlimited"
	}
	return strconv.FormatFloat(b.CPUs(), 'f', 2, 64) + " CPUs"
}

// Same reports whether two bandwidths are one but for rounding.
func (b Bandwidth) Same(other Bandwidth) bool {
	if b == Unlimited || other == Unlimited {
		return b == other
	}
	return max(b-other, other-b) <= BandwidthGrain
}

func (b Bandwidth) grained() Bandwidth { return b / BandwidthGrain * BandwidthGrain }

// fromUsec is systemd's own number; all ones is infinity.
func fromUsec(usec uint64) Bandwidth {
	if usec >= uint64(bandwidthMax) {
		return Unlimited
	}
	return Bandwidth(usec)
}

func (b Bandwidth) usec() uint64 {
	if b == Unlimited {
		return math.MaxUint64
	}
	return uint64(b)
}

// parseMax reads cpu.max of cgroup v2: "max 100000" or "150000 100000", in
// microseconds of quota and period.
func parseMax(text string) (Bandwidth, error) {
	quota, period, ok := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	if !ok {
		return 0, fmt.Errorf("cpu.max %q: %w", text, ErrMalformed)
	}
	if quota == "max" {
		quota = "-1"
	} else if strings.HasPrefix(quota, "-") {
		return 0, fmt.Errorf("cpu.max %q: %w", text, ErrMalformed)
	}
	return parseQuota(quota, period)
}

// parseQuota reads quota and period in microseconds as cgroup v1 shows them; a
// quota of -1 is none.
func parseQuota(quota, period string) (Bandwidth, error) {
	q, errQ := strconv.ParseInt(quota, 10, 64)
	p, errP := strconv.ParseInt(period, 10, 64)
	switch {
	case errQ != nil || errP != nil || p <= 0 || q < -1 || q == 0:
		return 0, fmt.Errorf("quota %q in period %q: %w", quota, period, ErrMalformed)
	case q == -1 || q/p >= int64(bandwidthMax/CPU):
		return Unlimited, nil
	}
	return Bandwidth(float64(q) / float64(p) * float64(CPU)), nil
}

// parseUsed reads usage_usec from cpu.stat of cgroup v2.
func parseUsed(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return parseTime(v, time.Microsecond)
		}
	}
	return 0, fmt.Errorf("cpu.stat: no usage_usec: %w", ErrMalformed)
}

func parseTime(text string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > int64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("CPU time %q: %w", text, ErrMalformed)
	}
	return time.Duration(n) * unit, nil
}
