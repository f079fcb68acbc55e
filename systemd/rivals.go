package systemd

// Rival is a unit that is known to write controls that powerd writes too.
type Rival struct {
	// Unit is its name, or a pattern for Manager.ActiveUnits.
	Unit string
	// Writes says in words what it changes.
	Writes string
}

// rivals are the units that are known to write the same controls. Which of them run
// here Manager.ActiveUnits tells; which of them one found belongs to, RivalOf.
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

// RivalUnits are the names and patterns of Rivals, for Manager.ActiveUnits.
func RivalUnits() []string {
	all := rivals()
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.Unit
	}
	return names
}

// RivalOf says what a found unit is known to write.
func RivalOf(unit string) (Rival, bool) {
	for _, r := range rivals() {
		if matches(unit, []string{r.Unit}) {
			return Rival{Unit: unit, Writes: r.Writes}, true
		}
	}
	return Rival{}, false
}
