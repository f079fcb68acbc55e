package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/rapl"
)

func newZoneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "zone", Short: "Show the RAPL zones of this machine",
		Example: "  powerd zone list\n  powerd zone show package-0\n  powerd zone watch",
	}
	cmd.AddCommand(newZoneListCommand(), newZoneShowCommand(), newZoneWatchCommand())
	return cmd
}

const zoneLong = `Figures come from the running powerd. If none runs, the machine is read twice, and power is the mean
between the two reads. ENERGY is then the raw counter; with powerd it is the energy used since powerd
started, across wraps and resets. Zones that powerd does not watch (cores, graphics, platform) are
always read from the machine. With --root no configuration is needed. On a machine without RAPL the
list is empty, a note gives the reason, and the exit code is 0.`

func newZoneListCommand() *cobra.Command {
	var p shown
	interval := cli.WatchLeast
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the zones with power, energy and limits",
		Long:    "List the zones with power, energy, and the limit as requested, written and effective.\n\n" + zoneLong,
		Example: "  powerd zone list\n  powerd zone list --root n01/root -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listZones(cmd, &p, interval)
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVarP(&p.watch.On, "watch", "w", false, "print again at each interval")
	cmd.Flags().DurationVar(&interval, "interval", cli.WatchLeast, "time between two reads")
	return cmd
}

func newZoneWatchCommand() *cobra.Command {
	var p shown
	p.watch.On = true
	interval := time.Second
	cmd := &cobra.Command{
		Use: "watch", Short: "Print the zones at an interval, with -o json one object per line",
		Example: "  powerd zone watch\n  powerd zone watch --interval 500ms -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listZones(cmd, &p, interval) },
	}
	p.flags(cmd)
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two updates, at least 250ms")
	return cmd
}

func listZones(cmd *cobra.Command, p *shown, interval time.Duration) (err error) {
	s, err := p.find(cmd.Context())
	if err != nil {
		return err
	}
	o, err := openOwn(s.root)
	switch {
	case err != nil && s.status == nil:
		return err
	case err != nil:
		o = nil // powerd may read a tree that this user may not
	default:
		defer func() { err = errors.Join(err, o.close()) }()
	}
	p.watch.Interval = interval
	if o != nil && o.tree != nil {
		o.look()
		if err := awaitLook(cmd.Context(), interval); err != nil {
			return err
		}
	}
	noteBare(cmd.ErrOrStderr(), s, o)
	return p.watch.Run(cmd, func() error {
		if s.status != nil {
			s.status, _ = answering(cmd.Context(), s.stateDir)
		}
		rows := zoneRows(s, o)
		if s.status == nil {
			o.noteStill(cmd.ErrOrStderr())
		}
		return p.print(cmd, cli.NewList("ZoneList", rows), func(w io.Writer) error { return printZones(w, &p.out, rows) })
	})
}

// noteBare prints why a machine has no zone.
func noteBare(w io.Writer, s site, o *own) {
	if o != nil && o.bare != nil && len(s.status.GetZones()) == 0 {
		cli.Notef(w, "note: no zones: %v; this is a virtual machine, has no RAPL, or its kernel lacks the driver (modprobe intel_rapl_msr)", o.bare)
	}
}

func printZones(w io.Writer, out *cli.Output, rows []zoneRow) error {
	head := []string{"ZONE", "KIND", "CONTROL", "POWER", "REQUESTED", "EFFECTIVE", "MAX", "WINDOW", "STATE"}
	if out.IsWide() {
		head = append(head, "WRITTEN", "ENERGY", "PATH")
	}
	lines := make([][]string, 0, len(rows))
	for _, z := range rows {
		line := []string{
			z.Zone, z.Kind, z.Control, screenW(z.PowerW), screenW(z.RequestedW), screenW(z.EffectiveW), screenW(z.MaxW), screenS(z.WindowS), z.State,
		}
		if out.IsWide() {
			line = append(line, screenW(z.WrittenW), screenKJ(z.EnergyJ), z.Path)
		}
		lines = append(lines, line)
	}
	return out.Table(w, head, lines)
}

// zoneRow is one zone of `powerd zone list`; null is unknown.
type zoneRow struct {
	zoneJSON

	MaxW   *float64 `json:"max_w"`
	RangeJ *float64 `json:"range_j"`
	Path   string   `json:"path"`
}

// zoneRows returns the figures of the running powerd, and those that it lacks from the machine.
func zoneRows(s site, o *own) []zoneRow {
	var rows []zoneRow
	if o != nil {
		o.look()
		for i, z := range o.zones() {
			rows = append(rows, ownRow(o, i, z))
		}
	}
	for _, z := range s.status.GetZones() {
		at := slices.IndexFunc(rows, func(r zoneRow) bool {
			return r.Zone == z.GetZone() && (z.GetControlType() == "" || r.Control == z.GetControlType())
		})
		if at < 0 {
			rows = append(rows, zoneRow{zoneJSON: zoneJSON{Zone: z.GetZone(), Kind: z.GetKind(), Control: z.GetControlType()}})
			at = len(rows) - 1
		}
		told(&rows[at], z)
	}
	return rows
}

// told puts powerd's figures into a row. A zone that powerd does not watch, the cores of
// a package for example, keeps those of the machine.
func told(row *zoneRow, z *headroomv1.ZoneStatus) {
	row.RequestedW, row.WrittenW = status.Micro(z.RequestedUw), status.Micro(z.WrittenUw)
	row.State = z.GetState()
	if watched := z.PowerUw != nil || z.EnergyUj != nil || z.GetState() != "read-only"; watched {
		row.PowerW, row.EnergyJ = status.Micro(z.PowerUw), status.Micro(z.EnergyUj)
	}
	if z.EffectiveUw != nil {
		row.EffectiveW = status.Micro(z.EffectiveUw)
	}
	if z.WindowUs != nil {
		row.WindowS = status.Micro(z.WindowUs)
	}
}

func ownRow(o *own, i int, z *rapl.Zone) zoneRow {
	row := zoneRow{zoneJSON: zoneJSON{Zone: z.Label, Kind: z.Kind.String(), Control: z.Control, State: "read-only"}, Path: z.Dir}
	if z.Range > 0 {
		row.RangeJ = new(z.Range.Joules())
	}
	if p := o.powers[i]; p != nil {
		row.PowerW = new(p.Watts())
	}
	e, err := z.Energy()
	if err == nil {
		row.EnergyJ = new(e.Joules())
	}
	if ownLimit(&row, z); err != nil && row.EffectiveW == nil {
		row.State = "unknown"
	}
	if o.still[i] && row.State == status.OK {
		row.State = "stale"
	}
	return row
}

// ownLimit fills in the long-term limit of a zone that has one.
func ownLimit(row *zoneRow, z *rapl.Zone) {
	c, err := z.Constraint(rapl.LongTerm)
	if err != nil {
		return
	}
	row.State = "unknown"
	if v, err := c.Power(); err == nil {
		row.EffectiveW, row.State = new(v.Watts()), "ok"
	}
	if c.PowerMax > 0 {
		row.MaxW = new(c.PowerMax.Watts())
	}
	if w, err := c.Window(); err == nil {
		row.WindowS = new(w.Seconds())
	}
	if on, err := z.Enabled(); err == nil && !on {
		row.State = "off" // disabled, or locked by firmware: both read the same
		if value, err := c.Power(); err == nil && value == 0 {
			row.EffectiveW, row.WindowS = nil, nil // a limit that was never set, not one of 0 W
		}
	}
}

func newZoneShowCommand() *cobra.Command {
	var p shown
	interval := cli.WatchLeast
	cmd := &cobra.Command{
		Use: "show ZONE", Short: "Show one zone and its constraints",
		Example: "  powerd zone show package-0\n  powerd zone show dram-0 --root n01/root -o json", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return showZone(cmd, &p, interval, args[0]) },
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return zoneNames(cmd.Context(), &p.place), cobra.ShellCompDirectiveNoFileComp
		},
	}
	p.flags(cmd)
	cmd.Flags().DurationVar(&interval, "interval", cli.WatchLeast, "time between two reads")
	return cmd
}

// zoneNames are the names of the zones, for completion.
func zoneNames(ctx context.Context, p *place) []string {
	s, _, err := p.ask(ctx)
	if err != nil {
		return nil
	}
	o, err := openOwn(s.root)
	if err != nil {
		return nil
	}
	defer func() { _ = o.close() }()
	return o.names()
}

// zoneDetail is `powerd zone show`.
type zoneDetail struct {
	Report string `json:"report"`
	API    string `json:"api"`
	AsOf   string `json:"as_of"`
	zoneRow

	Parent      *string          `json:"parent"`
	Enabled     *bool            `json:"enabled"`
	Twins       []string         `json:"twins"`
	Constraints []constraintJSON `json:"constraints"`
}

type constraintJSON struct {
	Constraint string   `json:"constraint"`
	EffectiveW *float64 `json:"effective_w"`
	MaxW       *float64 `json:"max_w"`
	WindowS    *float64 `json:"window_s"`
}

func showZone(cmd *cobra.Command, p *shown, interval time.Duration, name string) (err error) {
	s, err := p.find(cmd.Context())
	if err != nil {
		return err
	}
	o, err := openOwn(s.root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	at := slices.IndexFunc(o.zones(), func(z *rapl.Zone) bool { return z.Label == name })
	if at < 0 {
		return noZone(name, o)
	}
	o.look()
	if err := awaitLook(cmd.Context(), interval); err != nil {
		return err
	}
	d := detail(o, at, zoneRows(s, o))
	if s.status == nil && o.still[at] {
		o.noteStill(cmd.ErrOrStderr())
	}
	return p.print(cmd, d, func(w io.Writer) error { return printZone(w, &p.out, d) })
}

func noZone(name string, o *own) error {
	e := &cli.Error{Code: "no-zone", Exit: cli.ExitUsage, Message: fmt.Sprintf("zone %q: not found", name), Hint: "powerd zone list lists the zones of this machine"}
	if near := cli.Nearest(name, o.names()); near != "" {
		e.Hint = "did you mean " + near + "?"
	}
	return e
}

func detail(o *own, at int, rows []zoneRow) zoneDetail {
	z := o.zones()[at]
	d := zoneDetail{Report: "Zone", API: "v1", AsOf: cli.Now(), zoneRow: rows[at], Twins: []string{}, Constraints: []constraintJSON{}}
	if z.Parent != nil {
		d.Parent = &z.Parent.Label
	}
	if on, err := z.Enabled(); err == nil {
		d.Enabled = &on
	}
	for _, t := range o.tree.Twins(z) {
		d.Twins = append(d.Twins, t.Label)
	}
	for _, name := range []string{rapl.LongTerm, rapl.ShortTerm, "peak_power"} {
		c, err := z.Constraint(name)
		if err != nil {
			continue
		}
		row := constraintJSON{Constraint: name}
		if v, err := c.Power(); err == nil {
			row.EffectiveW = new(v.Watts())
		}
		if c.PowerMax > 0 {
			row.MaxW = new(c.PowerMax.Watts())
		}
		if w, err := c.Window(); err == nil {
			row.WindowS = new(w.Seconds())
		}
		d.Constraints = append(d.Constraints, row)
	}
	return d
}

func printZone(w io.Writer, out *cli.Output, d zoneDetail) error {
	on := cli.Opt(d.Enabled, func(on bool) string { return map[bool]string{true: "on", false: "off or locked by firmware"}[on] })
	lines := [][2]string{
		{"zone", d.Zone},
		{"kind", d.Kind},
		{"control", d.Control},
		{"part of", screenText(d.Parent)},
		{"power", screenW(d.PowerW)},
		{"energy", screenKJ(d.EnergyJ)},
		{"requested", screenW(d.RequestedW)},
		{"written", screenW(d.WrittenW)},
		{"effective", screenW(d.EffectiveW)},
		{"limits", on},
		{"state", d.State},
		{"counter", "wraps at " + screenKJ(d.RangeJ)},
		{"same as", cmp.Or(strings.Join(d.Twins, " "), cli.Unknown)},
		{"path", d.Path},
	}
	if err := printPairs(w, lines); err != nil {
		return err
	}
	if len(d.Constraints) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(d.Constraints))
	for _, c := range d.Constraints {
		rows = append(rows, []string{c.Constraint, screenW(c.EffectiveW), screenW(c.MaxW), screenS(c.WindowS)})
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return out.Table(w, []string{"CONSTRAINT", "EFFECTIVE", "MAX", "WINDOW"}, rows)
}
