package agent

import (
	"fmt"
	"os"
	"path"
	"slices"

	"headroom/capping"
	"headroom/dvfs"
	"headroom/rapl"
)

// ControlsConfig is the controls section: which of the controls found may be written.
// Its patterns are shell globs (path.Match) over names of controls: "package-0" and
// "rapl" (see PackageNames), "policy0" and "cpufreq" (PolicyNames),
// "slice:batch.slice" and "bandwidth" (SliceNames), "epp", "turbo", "bmc".
type ControlsConfig struct {
	// Allow names what may be written; empty: everything.
	Allow []string `yaml:"allow"`
	// Deny names what of that may not.
	Deny []string `yaml:"deny"`
}

// Names of controls that a machine has once.
const (
	eppName   = "epp"
	turboName = "turbo"
	bmcName   = "bmc"
)

// packageNames are the names that the limits of a package go by.
func packageNames(z *rapl.Zone) []string { return []string{z.Label, rungRAPL} }

// policyNames are the names that the frequency ceiling of a policy goes by.
func policyNames(p *dvfs.Policy) []string { return []string{p.Name, rungCPUFreq} }

// sliceNames are the names that the CPU bandwidth of a slice goes by.
func sliceNames(slice string) []string {
	return []string{"slice:" + slice, capping.RungBandwidth.String()}
}

// Denied is why a control with these names may not be written, "" when it may.
func (c ControlsConfig) Denied(names []string) string {
	for _, p := range c.Deny {
		if matches(p, names) {
			return fmt.Sprintf("controls.deny has %q", p)
		}
	}
	if len(c.Allow) == 0 || slices.ContainsFunc(c.Allow, func(p string) bool { return matches(p, names) }) {
		return ""
	}
	return fmt.Sprintf("controls.allow has no %s", names[0])
}

// deniedRung is why a rung of several controls may not be used, which it takes all of,
// "" when it may.
func (c ControlsConfig) deniedRung(controls [][]string) string {
	for _, names := range controls {
		if why := c.Denied(names); why != "" {
			return names[0] + ": " + why
		}
	}
	return ""
}

// DeniedRAPL is why the packages' limits may not be used, "" when they may: a cap is
// held by all packages or by none.
func (c ControlsConfig) DeniedRAPL(packages []*rapl.Zone) string {
	var all [][]string
	for _, z := range packages {
		all = append(all, packageNames(z))
	}
	return c.deniedRung(all)
}

// DeniedFreq is the same for the frequency ceilings.
func (c ControlsConfig) DeniedFreq(policies []*dvfs.Policy) string {
	var all [][]string
	for _, p := range policies {
		all = append(all, policyNames(p))
	}
	return c.deniedRung(all)
}

// AllowedSlices are the slices of bandwidth.slices whose bandwidth may be written.
func (c *Config) AllowedSlices() []string {
	return slices.DeleteFunc(slices.Clone(c.Bandwidth.Slices), func(s string) bool { return c.Controls.Denied(sliceNames(s)) != "" })
}

// keepsLimit says that the BMC's own limit is kept.
func (c *Config) keepsLimit() bool { return c.IPMI.Limit && c.Controls.Denied([]string{bmcName}) == "" }

func matches(pattern string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

func (c ControlsConfig) validate() error {
	for key, patterns := range map[string][]string{"allow": c.Allow, "deny": c.Deny} {
		for _, p := range patterns {
			if _, err := path.Match(p, ""); err != nil || p == "" {
				return badConfig(fmt.Sprintf("controls.%s: %q is no pattern", key, p), "write names with * and ?, for example package-*; see powerd status")
			}
		}
	}
	return nil
}

// UnmatchedControls are the patterns of cfg.Controls, each with its key, that match no
// control of the machine below cfg.Root: misspelt, or of another machine. Words for a
// kind of control (rapl, cpufreq, bandwidth, epp, turbo, bmc) always match. The error
// is that of the root.
func UnmatchedControls(cfg Config) ([]string, error) {
	if len(cfg.Controls.Allow)+len(cfg.Controls.Deny) == 0 {
		return nil, nil
	}
	root, err := OpenRoot(cfg.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	names := controlNames(root, cfg)
	var lost []string
	for _, section := range []struct {
		key      string
		patterns []string
	}{{"allow", cfg.Controls.Allow}, {"deny", cfg.Controls.Deny}} {
		for _, p := range section.patterns {
			if !matches(p, names) {
				lost = append(lost, fmt.Sprintf("controls.%s: %q", section.key, p))
			}
		}
	}
	return lost, nil
}

// controlNames are all names that controls of a machine go by. What cannot be read has none.
func controlNames(root *os.Root, cfg Config) []string {
	names := []string{rungRAPL, rungCPUFreq, capping.RungBandwidth.String(), eppName, turboName, bmcName}
	if open := treeOpener(cfg.RAPL.Source); open != nil {
		if tree, err := open(root); err == nil {
			for _, z := range tree.OfKind(rapl.Package) {
				names = append(names, z.Label)
			}
			_ = tree.Close() // as above
		}
	}
	if set, err := dvfs.Open(root); err == nil {
		for _, p := range set.Policies() {
			names = append(names, p.Name)
		}
		_ = set.Close() // as above
	}
	for _, s := range cfg.Bandwidth.Slices {
		names = append(names, sliceNames(s)[0])
	}
	return names
}

// deniedError reports a control that the configuration keeps powerd from writing.
type deniedError struct{ why string }

func (e deniedError) Error() string { return "left alone: " + e.why }
