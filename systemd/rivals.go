package systemd

import "headroom/internal/each"

// Rival is a unit that may write the same controls as powerd.
type Rival struct {
	// Unit is its name, or a pattern for Manager.ActiveUnits.
	Unit string
	// Writes describes what it changes.
	Writes string
}

// rivals returns the known rivals. Manager.ActiveUnits returns those that run, RivalOf the
// entry of one of them.
func rivals() []Rival {
	const (
		limits    = "RAPL limits"
		frequency = "frequency limits, governor and energy preference"
	)
	return []Rival{
		{"thermald.service", limits},
		{"throttled.service", limits},
		{"lenovo_fix.service", limits},
		{"intel-undervolt*.service", limits},
		{"amdctl.service", limits},
		{"geopm.service", limits + ", " + frequency},
		{"eard.service", frequency},
		{"tuned.service", frequency},
		{"tuned-ppd.service", frequency},
		{"power-profiles-daemon.service", "energy preference"},
		{"tlp.service", frequency},
		{"auto-cpufreq.service", frequency},
		{"cpupower.service", frequency},
		{"cpufrequtils.service", frequency},
		{"cpufreqd.service", frequency},
		{"laptop-mode.service", frequency},
		{"ondemand.service", "governor"},
		{"*powerd*.service", "everything that this powerd writes"},
	}
}

// RivalUnits returns the names and patterns of all rivals, for Manager.ActiveUnits.
func RivalUnits() []string {
	all := rivals()
	return each.List(all, func(r Rival) string { return r.Unit })
}

// RivalOf returns the rival that a unit belongs to.
func RivalOf(unit string) (Rival, bool) {
	for _, r := range rivals() {
		if matches(unit, []string{r.Unit}) {
			return Rival{Unit: unit, Writes: r.Writes}, true
		}
	}
	return Rival{}, false
}
