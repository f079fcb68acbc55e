package bench

import (
	"os"

	"headroom/rapl"
)

func cut(l *rapl.Limiter) (int64, error) {
	os.WriteFile("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", nil, 0)            // want `only the agent`
	os.OpenFile("/dev/cpu/0/msr", os.O_RDWR, 0)                                                 // want `only the agent`
	os.OpenFile("/sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", os.O_RDONLY, 0) // reading is free
	return l.SetPower("long_term", 95)                                                          // want `only the agent`
}
