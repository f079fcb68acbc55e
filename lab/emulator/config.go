package emulator

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// writeConfig writes powerd.yaml for the node where there is none yet; one that
// is there was perhaps edited and stays.
func (m *machine) writeConfig() error {
	path := filepath.Join(m.dir, "powerd.yaml")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("emulator: powerd.yaml: %w", err)
	}
	_, err = file.WriteString(m.config())
	return errors.Join(err, file.Close())
}

// config is powerd's configuration for this node. Its power figures are on
// the safe side of what the plant draws: rated and floor rounded up, the supply as
// lossy as it is at the floor.
func (m *machine) config() string {
	spec := DefaultSpec()
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by powerlab node for an emulated node; edit it and restart powerd.\n")
	fmt.Fprintf(&b, "node: %q\ndomain: %q\nroot: %q\nstate_dir: %q\nenforce: true\n",
		m.opts.name, m.opts.domain, m.node.RootDir(), filepath.Join(m.dir, "state"))
	rated, floor := math.Ceil(spec.Rated().Watts()), math.Ceil(spec.Floor().Watts())
	fmt.Fprintf(&b, "power:\n  rated: %.0fW\n  floor: %.0fW\n  max: %.0fW\n  fail_safe: %gW\n  other: %gW\n  supply_efficiency: %.3f\n",
		rated, floor, rated, spec.FailSafe.Watts(), spec.Other.Watts(), math.Floor(spec.WorstEfficiency()*1000)/1000)
	fmt.Fprintf(&b, "weight: 1.0\ncoordinators: []\n")
	if m.opts.keyFile != "" { // gossip needs one; a node without stands alone
		fmt.Fprintf(&b, "gossip:\n  bind: 127.0.0.1:0\n  join: %s\n  key_file: %q\n",
			strings.ReplaceAll(fmt.Sprintf("%q", m.opts.join), `" "`, `", "`), m.opts.keyFile)
	}
	if m.opts.brakeKeyFile != "" {
		fmt.Fprintf(&b, "brake:\n  public_key_file: %q\n", m.opts.brakeKeyFile)
	}
	if m.bmc != nil {
		fmt.Fprintf(&b, "ipmi:\n  mode: lan\n  address: %q\n  user: %q\n  password_file: %q\n", m.bmc.Addr(), boardUser, m.bmc.passwordFile)
	}
	b.WriteString("log_level: info\n")
	return b.String()
}
