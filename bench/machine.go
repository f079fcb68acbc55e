package bench

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is where the figures were measured, and how quiet it was.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Processor string `json:"processor"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	// Calibration is the time of a fixed piece of work, repeated around every
	// figure: a machine that is quiet has it close together.
	Calibration Calibration `json:"calibration"`
}

// Calibration are the times of a fixed piece of work, in seconds.
type Calibration struct {
	MinS    float64 `json:"min_s"`
	MedianS float64 `json:"median_s"`
	MaxS    float64 `json:"max_s"`
	Loops   int     `json:"loops"`
}

func describe(loops []time.Duration) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Processor: processor(), Kernel: kernel(), Go: runtime.Version()}
	s := spreadOf(loops)
	m.Calibration = Calibration{s.at(0).Seconds(), s.median().Seconds(), s.max().Seconds(), len(loops)}
	return m
}

// String is the line under the table.
func (m Machine) String() string {
	c := m.Calibration
	text := fmt.Sprintf("machine: %d CPUs, %s, %s, %s\n", m.CPUs, m.Processor, m.Kernel, m.Go)
	if c.MinS == 0 {
		return text
	}
	return text + fmt.Sprintf("noise: a fixed piece of work took min %.2f, median %.2f, max %.2f ms over %d loops (median %+.0f %%, max %+.0f %% over min)\n",
		1000*c.MinS, 1000*c.MedianS, 1000*c.MaxS, c.Loops, 100*(c.MedianS/c.MinS-1), 100*(c.MaxS/c.MinS-1))
}

// calibrationLoops is how often the fixed work is timed at once: about a quarter of a second.
const calibrationLoops = 50

// calibrate times a fixed piece of work: pure computation in the cache.
func calibrate() []time.Duration {
	var block [64 << 10]byte
	loops := make([]time.Duration, 0, calibrationLoops)
	for range calibrationLoops {
		began := time.Now()
		for range 32 {
			sum := sha256.Sum256(block[:])
			copy(block[:], sum[:])
		}
		loops = append(loops, time.Since(began))
	}
	return loops
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
