package machine

import (
	"fmt"
	"os"

	"headroom/agent/config"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/rapl"
)

// UnmatchedControls are the patterns of cfg.Controls, each with its key, that match no
// control of the machine below cfg.Root: misspelt, or of another machine. Words for a
// kind of control (rapl, cpufreq, bandwidth, epp, turbo, bmc) always match. The error
// is that of the root.
func UnmatchedControls(cfg config.Config) ([]string, error) {
	if len(cfg.Controls.Allow)+len(cfg.Controls.Deny) == 0 {
		return nil, nil
	}
	root, err := OpenRoot(cfg.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	names := controlNames(root, &cfg)
	var lost []string
	for _, section := range []struct {
		key      string
		patterns []string
	}{{"allow", cfg.Controls.Allow}, {"deny", cfg.Controls.Deny}} {
		for _, p := range section.patterns {
			if !config.Matches(p, names) {
				lost = append(lost, fmt.Sprintf("controls.%s: %q", section.key, p))
			}
		}
	}
	return lost, nil
}

// controlNames are all names that controls of a machine go by. What cannot be read has none.
func controlNames(root *os.Root, cfg *config.Config) []string {
	names := []string{capping.RungRAPL.String(), capping.RungFreq.String(), capping.RungBandwidth.String(), config.EPPName, config.TurboName, config.BMCName}
	if open := TreeOpener(cfg.RAPL.Source); open != nil {
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
		names = append(names, config.SliceNames(s)[0])
	}
	return names
}
