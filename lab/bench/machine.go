package bench

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
)

// Machine names what the figures are measured on: how many cores this process may use, and the processor's model.
func Machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	model, _, _ := strings.Cut(rest, "\n")
	return fmt.Sprintf("%d cores, %s", runtime.GOMAXPROCS(0), cmp.Or(strings.Join(strings.Fields(strings.Trim(model, " \t:")), " "), "unknown processor"))
}

// Look is the noise of this machine now.
func Look() Noise {
	var c calibration
	c.run()
	return c.noise()
}

// loadAverage is that of the last minute; nil if it is unknown.
func loadAverage() *float64 {
	var v float64
	text, _ := os.ReadFile("/proc/loadavg")
	_, err := fmt.Sscan(string(text), &v)
	return cli.Known(v, err == nil)
}

// Noise is how much a fixed loop of arithmetic differed over the run, in
// milliseconds and, as spread, percent of the median.
type Noise struct {
	Runs   int     `json:"runs"`
	Min    float64 `json:"min_ms"`
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
	Spread float64 `json:"spread_pct"`
}

// String is the noise in one line.
func (n Noise) String() string {
	return fmt.Sprintf("a fixed loop took %.1f / %.1f / %.1f ms (min / median / max of %d): a spread of %.0f %%",
		n.Min, n.Median, n.Max, n.Runs, n.Spread)
}

// The calibration loop: long enough for the clock, short enough to repeat often.
const (
	calibrationRounds = 3_000_000
	calibrationRuns   = 8 // before and after each benchmark
)

// calibration has the times of the fixed loop in ms.
type calibration []float64

// run times the loop a few times: a chain of dependent integer operations (xorshift64; Marsaglia 2003).
func (c *calibration) run() {
	for range calibrationRuns {
		began := time.Now()
		x := uint64(88172645463325252)
		for range calibrationRounds {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if x != 0 { // always, but the compiler must not see that
			*c = append(*c, 1000*time.Since(began).Seconds())
		}
	}
}

func (c *calibration) noise() Noise {
	low, mid, high := slices.Min(*c), quantile(*c, 0.5), slices.Max(*c)
	return Noise{Runs: len(*c), Min: low, Median: mid, Max: high, Spread: 100 * (high - low) / mid}
}
