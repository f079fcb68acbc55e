package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/cli"
)

// Machine is what the figures were measured on.
type Machine struct {
	// Cores that this process may use.
	Cores int `json:"cores"`
	// CPU is the processor's model name; nil when the kernel gives none.
	CPU *string `json:"cpu"`
	// LoadStart and LoadEnd are the 1-minute load averages around the run.
	LoadStart *float64 `json:"load_start"`
	LoadEnd   *float64 `json:"load_end"`
	// Go is the version of the toolchain.
	Go string `json:"go"`
}

// String is the machine in one line.
func (m Machine) String() string {
	load := func(v *float64) string {
		return cli.Opt(v, func(v float64) string { return fmt.Sprintf("%.1f", v) })
	}
	return fmt.Sprintf("%d cores, %s, load %s at the start and %s at the end, %s", m.Cores, cli.Opt(m.CPU, func(s string) string { return s }), load(m.LoadStart), load(m.LoadEnd), m.Go)
}

// thisMachine describes the machine as it is now.
func thisMachine() Machine {
	return Machine{Cores: runtime.GOMAXPROCS(0), CPU: cpuModel(), LoadStart: loadAverage(), Go: runtime.Version()}
}

// Look describes the machine as it is now, and its noise.
func Look() (Machine, Noise) {
	var c calibration
	c.run()
	return thisMachine(), c.noise()
}

func cpuModel() *string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model := strings.Join(strings.Fields(value), " ")
			return &model
		}
	}
	return nil
}

func loadAverage() *float64 {
	data, err := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	v, errParse := strconv.ParseFloat(first, 64)
	return cli.Known(v, err == nil && errParse == nil)
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

// calibration collects the times of the fixed loop.
type calibration struct{ took []time.Duration }

// run times the loop a few times.
func (c *calibration) run() {
	for range calibrationRuns {
		began := time.Now()
		if grind(calibrationRounds) == 0 {
			return // never: xorshift has no way to 0, but the compiler must not see that
		}
		c.took = append(c.took, time.Since(began))
	}
}

// grind is a chain of dependent integer operations (xorshift64; Marsaglia 2003).
func grind(rounds int) uint64 {
	x := uint64(88172645463325252)
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// noise sums the calibration up; without a run everything is 0.
func (c *calibration) noise() Noise {
	if len(c.took) == 0 {
		return Noise{}
	}
	ms := func(d time.Duration) float64 { return 1000 * d.Seconds() }
	low, mid, high := slices.Min(c.took), quantile(c.took, 0.5), slices.Max(c.took)
	return Noise{Runs: len(c.took), Min: ms(low), Median: ms(mid), Max: ms(high), Spread: 100 * (high - low).Seconds() / mid.Seconds()}
}
