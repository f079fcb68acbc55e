package emulator

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"headroom/units"
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
	spec := m.opts.Shape.Spec
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by powerlab node for an emulated node; edit it and restart powerd.\n")
	fmt.Fprintf(&b, "node: %s\ndomain: %s\n", quote(m.opts.Name), quote(m.opts.Domain))
	fmt.Fprintf(&b, "root: %s\nstate_dir: %s\nenforce: true\n", quote(m.node.RootDir()), quote(filepath.Join(m.dir, "state")))
	rated, floor := math.Ceil(spec.Rated().Watts()), math.Ceil(m.floor().Watts())
	fmt.Fprintf(&b, "power:\n  rated: %.0fW\n  floor: %.0fW\n  max: %.0fW\n  fail_safe: %gW\n  other: %gW\n  supply_efficiency: %.3f\n",
		rated, floor, rated, max(floor, spec.FailSafe.Watts()), m.other().Watts(),
		math.Floor(spec.WorstEfficiency()*1000)/1000)
	fmt.Fprintf(&b, "weight: 1.0\ncoordinators: []\n")
	if m.opts.KeyFile != "" { // gossip needs one; a node without stands alone
		fmt.Fprintf(&b, "gossip:\n  bind: 127.0.0.1:0\n  join: [%s]\n  key_file: %s\n", quoteAll(m.opts.Join), quote(m.opts.KeyFile))
	}
	if m.opts.BrakeKeyFile != "" {
		fmt.Fprintf(&b, "brake:\n  public_key_file: %s\n", quote(m.opts.BrakeKeyFile))
	}
	if m.bmc != nil {
		fmt.Fprintf(&b, "ipmi:\n  mode: lan\n  address: %s\n  user: %s\n  password_file: %s\n",
			quote(m.bmc.Addr()), quote(boardUser), quote(m.bmc.passwordFile))
	}
	b.WriteString("log_level: info\n")
	return b.String()
}

// other is what no counter of the machine shows: without a memory zone, memory too.
func (m *machine) other() units.Power {
	shape := m.opts.Shape
	if shape.DRAM {
		return shape.Spec.Other
	}
	memory := units.Power(max(1, shape.Spec.Packages)) * (shape.Spec.DRAMIdle + shape.Spec.DRAMDynamic)
	return shape.Spec.Other + memory
}

// floor is the least cap that holds when memory that no counter shows is counted at
// its most, as other counts it.
func (m *machine) floor() units.Power {
	spec := m.opts.Shape.Spec
	if m.opts.Shape.DRAM {
		return spec.Floor()
	}
	unseen := units.Power(max(1, spec.Packages)) * spec.DRAMDynamic
	return spec.Floor() + units.FromWatts(unseen.Watts()/spec.WorstEfficiency())
}

// quote is text as a YAML double-quoted scalar, which takes Go's escapes.
func quote(text string) string { return strconv.Quote(text) }

func quoteAll(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quote(text)
	}
	return strings.Join(quoted, ", ")
}
