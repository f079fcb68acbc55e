package dvfs

import (
	"errors"
	"fmt"
	"os"
)

// oldLayout is where kernels before 4.3 show cpufreq: for each CPU, without policies that tell which
// CPUs share a frequency.
const oldLayout = "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"

// ErrOldLayout reports such a kernel.
var ErrOldLayout = errors.New("this kernel shows cpufreq below each CPU only; policies need Linux 4.3 or later")

// noPolicy is the error of a machine without policies; failed are those that could not be opened.
func noPolicy(root *os.Root, failed []error) error {
	if _, err := root.Stat(oldLayout); err == nil && len(failed) == 0 {
		failed = append(failed, ErrOldLayout)
	}
	return errors.Join(Several(failed), fmt.Errorf("dvfs: %s: %w", cpufreqDir, ErrNoPolicy))
}
