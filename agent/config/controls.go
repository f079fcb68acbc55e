package config

import (
	"fmt"
	"path"
	"slices"

	"headroom/capping"
	"headroom/dvfs"
	"headroom/internal/each"
	"headroom/rapl"
)

// Controls is the controls section: which of the controls found may be written.
// Its patterns are shell globs (path.Match) over names of controls: "package-0" and
// "rapl" (see PackageNames), "policy0" and "cpufreq" (PolicyNames),
// "slice:batch.slice" and "bandwidth" (SliceNames), "epp", "turbo", "bmc".
type Controls struct {
	// Allow names what may be written; empty: everything.
	Allow []string `yaml:"allow"`
	// Deny names what of that may not.
	Deny []string `yaml:"deny"`
}

// Names of controls that a machine has once.
const (
	EPPName   = "epp"
	TurboName = "turbo"
	BMCName   = "bmc"
)

// PackageNames are the names that the limits of a package go by.
func PackageNames(z *rapl.Zone) []string { return []string{z.Label, capping.RungRAPL.String()} }

// PolicyNames are the names that the frequency ceiling of a policy goes by.
func PolicyNames(p *dvfs.Policy) []string { return []string{p.Name, capping.RungFreq.String()} }

// SliceNames are the names that the CPU bandwidth of a slice goes by.
func SliceNames(slice string) []string {
	return []string{"slice:" + slice, capping.RungBandwidth.String()}
}

// Denied is why a control with these names may not be written, "" when it may.
func (c Controls) Denied(names []string) string {
	for _, p := range c.Deny {
		if Matches(p, names) {
			return fmt.Sprintf("controls.deny has %q", p)
		}
	}
	if len(c.Allow) == 0 || slices.ContainsFunc(c.Allow, func(p string) bool { return Matches(p, names) }) {
		return ""
	}
	return fmt.Sprintf("controls.allow has no %s", names[0])
}

// deniedRung is why a rung of several controls may not be used, which it takes all of,
// "" when it may.
func (c Controls) deniedRung(controls [][]string) string {
	for _, names := range controls {
		if why := c.Denied(names); why != "" {
			return names[0] + ": " + why
		}
	}
	return ""
}

// DeniedRAPL is why the packages' limits may not be used, "" when they may: a cap is
// held by all packages or by none.
func (c Controls) DeniedRAPL(packages []*rapl.Zone) string {
	all := each.Of(packages, PackageNames)
	return c.deniedRung(all)
}

// DeniedFreq is the same for the frequency ceilings.
func (c Controls) DeniedFreq(policies []*dvfs.Policy) string {
	all := each.Of(policies, PolicyNames)
	return c.deniedRung(all)
}

// AllowedSlices are the slices of bandwidth.slices whose bandwidth may be written.
func (c *Config) AllowedSlices() []string {
	return slices.DeleteFunc(slices.Clone(c.Bandwidth.Slices), func(s string) bool { return c.Controls.Denied(SliceNames(s)) != "" })
}

// KeepsLimit reports whether the BMC's own limit is kept.
func (c *Config) KeepsLimit() bool { return c.IPMI.Limit && c.Controls.Denied([]string{BMCName}) == "" }

// Matches reports whether a pattern matches one of the names.
func Matches(pattern string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

func (c Controls) validate() error {
	for key, patterns := range map[string][]string{"allow": c.Allow, "deny": c.Deny} {
		for _, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return badConfig(fmt.Sprintf("controls.%s: invalid pattern %q", key, p), "use names with * and ?, for example package-*; see powerd zone list")
			}
		}
	}
	return nil
}

// DeniedError reports a control that the configuration keeps powerd from writing.
type DeniedError struct{ Why string }

// Error names the setting that keeps powerd from writing.
func (e DeniedError) Error() string { return "left alone: " + e.Why }
