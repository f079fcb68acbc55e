package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/rapl"
	"headroom/units"
)

func newZoneCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "zone", Short: "Show the RAPL zones of this machine", Example: "  powerd zone list"}
	cmd.AddCommand(newZoneListCommand())
	return cmd
}

func newZoneListCommand() *cobra.Command {
	var p place
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List every zone with its long-term limit, read from the machine itself",
		Example: "  powerd zone list\n  powerd zone list --root n01/root -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := readZones(p)
			if err != nil {
				return err
			}
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), map[string]any{"kind": "ZoneList", "api": "v1", "items": rows})
			}
			lines := make([][]string, 0, len(rows))
			for _, z := range rows {
				lines = append(lines, []string{z.Zone, z.Kind, z.Control, screenW(z.EffectiveW), screenW(z.MaxW), screenS(z.WindowS), z.Path})
			}
			return out.Table(cmd.OutOrStdout(), []string{"ZONE", "KIND", "CONTROL", "EFFECTIVE", "MAX", "WINDOW", "PATH"}, lines)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	return cmd
}

// zoneRow is one zone of `powerd zone list`.
type zoneRow struct {
	Zone       string   `json:"zone"`
	Kind       string   `json:"kind"`
	Control    string   `json:"control"`
	EffectiveW *float64 `json:"effective_w"`
	MaxW       *float64 `json:"max_w"`
	WindowS    *float64 `json:"window_s"`
	RangeJ     float64  `json:"range_j"`
	Path       string   `json:"path"`
}

// readZones needs no agent and no configuration when --root is given.
func readZones(p place) (rows []zoneRow, err error) {
	path := p.root
	if path == "" {
		cfg, err := p.load()
		if err != nil {
			return nil, err
		}
		path = cfg.Root
	}
	root, err := openRoot(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	tree, err := rapl.Open(root)
	if errors.Is(err, rapl.ErrNoTree) || errors.Is(err, rapl.ErrNoZone) {
		return nil, &cli.Error{
			Code: "no-rapl", Exit: cli.ExitFailed, Err: err, Message: err.Error(),
			Hint: "the machine has no RAPL, is a virtual machine, or its kernel lacks CONFIG_POWERCAP (modprobe intel_rapl_msr)",
		}
	}
	if err != nil {
		return nil, err
	}
	for _, z := range tree.Zones() {
		rows = append(rows, rowOf(z))
	}
	return rows, tree.Close()
}

func rowOf(z *rapl.Zone) zoneRow {
	row := zoneRow{Zone: z.Label, Kind: z.Kind.String(), Control: z.Control, RangeJ: z.Range.Joules(), Path: z.Dir}
	c, err := z.Constraint(rapl.LongTerm)
	if err != nil {
		return row
	}
	if v, err := c.Power(); err == nil {
		row.EffectiveW = new(v.Watts())
	}
	if c.PowerMax > 0 {
		row.MaxW = new(c.PowerMax.Watts())
	}
	if w, err := c.Window(); err == nil {
		row.WindowS = new(w.Seconds())
	}
	return row
}

func screenW(w *float64) string {
	return cli.Opt(w, func(v float64) string { return cli.Watts(units.FromWatts(v)) })
}

func screenS(s *float64) string {
	return cli.Opt(s, func(v float64) string { return fmt.Sprintf("%.2fs", v) })
}

// nowUs is the wall clock as files carry it: microseconds since the Unix epoch.
func nowUs() int64 { return time.Now().UnixMicro() }
