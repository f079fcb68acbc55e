package rapl

import (
	"fmt"
	"strings"
)

// Codes of remarks.
const (
	RemarkEnergyOnly = "energy-only" // packages count energy and have no limits
	RemarkPSys       = "psys"        // platform zones are there, shown and not summed
	RemarkTwins      = "twins"       // domains are shown through MSR and MMIO
	RemarkSkipped    = "skipped"     // zones could not be opened
	RemarkDenied     = "denied"      // counters may not be read
	RemarkSwitched   = "off"         // limits read as switched off: off, or locked
)

// Remark is one notable property of the tree, reported once.
type Remark struct {
	Code string // one of the Remark codes
	Text string // one sentence for people
}

// Remarks describes what is unusual about the machine's zones, or usual and
// surprising: for the log at start, once, and for status.
func (t *Tree) Remarks() []Remark {
	var all []Remark
	say := func(code string, zones []string, text string) {
		if len(zones) > 0 {
			all = append(all, Remark{Code: code, Text: strings.Join(zones, ", ") + ": " + text})
		}
	}
	if t.EnergyOnly() {
		say(RemarkEnergyOnly, t.labels(func(z *Zone) bool { return z.Kind == Package && z.EnergyOnly() }),
			"energy only, no limits; this is normal on AMD")
	}
	say(RemarkPSys, t.labels(func(z *Zone) bool { return z.Kind == PSys && !z.shadow() }),
		"counts the whole platform, packages included; shown and not summed")
	say(RemarkTwins, t.labels((*Zone).Repeats), "registered by a second driver; counted once, and the lower of the two limits wins")
	say(RemarkTwins, t.labels(func(z *Zone) bool { return z.shadow() && !z.Repeats() }), "counts what its MSR zone counts; the lower of the two limits wins")
	say(RemarkDenied, t.labels(func(z *Zone) bool { return z.energy == nil }),
		"the energy counter cannot be opened; since Linux 5.10 only root, or CAP_DAC_READ_SEARCH, may read it")
	say(RemarkSwitched, t.labels(func(z *Zone) bool { return z.Kind == Package && z.enabled != nil && !z.on() }),
		"limits read as switched off: they were never switched on, or firmware has locked them")
	if t.skipped != nil {
		all = append(all, Remark{Code: RemarkSkipped, Text: fmt.Sprintf("skipped zones: %v", t.skipped)})
	}
	return all
}

// labels are the labels of the zones that match.
func (t *Tree) labels(match func(*Zone) bool) []string {
	var found []string
	for _, z := range t.zones {
		if match(z) {
			found = append(found, z.Label)
		}
	}
	return found
}
