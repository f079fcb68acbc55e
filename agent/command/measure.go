package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/units"
)

// measured is `powerd measure`; null is unknown.
type measured struct {
	Kind     string       `json:"kind"`
	API      string       `json:"api"`
	TimeS    float64      `json:"time_s"`
	EnergyJ  *float64     `json:"energy_j"`
	PackageJ *float64     `json:"package_j"`
	DRAMJ    *float64     `json:"dram_j"`
	OtherJ   *float64     `json:"other_j"`
	At       string       `json:"measured_at"` // "wall" (model) or "package"
	MeanW    *float64     `json:"mean_w"`
	PeakW    *float64     `json:"peak_w"`
	PeakS    float64      `json:"peak_over_s"`
	LimitedS *float64     `json:"limited_s"`
	Zones    []zoneEnergy `json:"zones"`
	Sources  []sourceJSON `json:"sources"`
	Fit      *fitJSON     `json:"fit"`
	ExitCode *int         `json:"exit_code"`
}

type zoneEnergy struct {
	Zone    string   `json:"zone"`
	Kind    string   `json:"kind"`
	EnergyJ *float64 `json:"energy_j"`
}

func newMeasureCommand() *cobra.Command {
	var p place
	var out cli.Output
	var lasts time.Duration
	interval := cli.WatchLeast
	cmd := &cobra.Command{
		Use:   "measure [-- CMD...]",
		Short: "Measure the energy of a command or of an interval",
		Long: "Measure energy by zone, and the minimum, mean and maximum power of every source: while a command runs,\n" +
			"for a duration (--for), or until interrupted. With a command the result goes to stderr, because stdout\n" +
			"belongs to the command, and its exit code is returned. The command runs as the user who typed it.\n\n" +
			"Wall power needs a configuration (other and supply_efficiency) or a running powerd. Without one the\n" +
			"figures are those of packages and memory. If the running powerd reads a BMC, and the measurement has\n" +
			"at least 30 s of idle time and 30 s of load, the line fit shows power.other and\n" +
			"power.supply_efficiency for powerd.yaml (see docs/calibration.md).",
		Example: "  powerd measure --for 10s\n  powerd measure -- ./job.sh --size 3\n  powerd measure --for 1m -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				e := cli.Usage("%q: put -- before the command to measure", args[0])
				e.Hint = "powerd measure -- " + strings.Join(args, " ")
				return e
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && lasts > 0 {
				return cli.Usage("--for cannot be used with a command")
			}
			return measure(cmd, &p, &out, lasts, interval, args)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration, for example 10s (default: until interrupted)")
	cmd.Flags().DurationVar(&interval, "interval", cli.WatchLeast, "time between two samples; peak is a mean over it")
	return cmd
}

func measure(cmd *cobra.Command, p *place, out *cli.Output, lasts, interval time.Duration, args []string) (err error) {
	if interval < lookMin {
		return cli.Usage("--interval %v: must be at least %v", interval, lookMin)
	}
	s, err := p.sampler(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	ended := make(chan childEnd, 1)
	var child *os.Process
	switch {
	case len(args) > 0:
		if child, err = startChild(args); err != nil {
			return err
		}
		go func() { ended <- waitChild(child) }()
		w = cmd.ErrOrStderr()
	case lasts > 0:
		timed, cancel := context.WithTimeout(ctx, lasts)
		defer cancel()
		ctx = timed
	}
	m := &tally{peakOver: interval}
	end := m.run(ctx, s, interval, child, ended)
	s.own.noteStill(cmd.ErrOrStderr())
	if errPrint := printMeasured(w, out, m.result(s.site.status != nil, end)); errPrint != nil {
		return errPrint
	}
	if end != nil {
		return end.asError(args[0])
	}
	return cmd.Context().Err()
}

// tally adds up samples.
type tally struct {
	elapsed        time.Duration
	pack, dram     energySum
	whole          energySum
	wall           bool
	zones          []zoneEnergy
	zoneTotals     []energySum
	peak           *units.Power
	peakOver       time.Duration
	limited        time.Duration
	dramSeen, some bool
	sources        [4]rangeOf // by sourceNames
	bmc            string     // source of the BMC's reading: dcmi or sdr, "" without one
	fit            fit
}

// sourceNames returns the names of tally.sources; bmc is that of the BMC's reading.
func sourceNames(bmc string) [4]string { return [4]string{"package", "dram", "wall", bmc} }

// run samples until ctx ends or, with a child, until that has ended. A SIGTERM is
// passed to the child, which is always waited for.
func (m *tally) run(ctx context.Context, s *sampler, interval time.Duration, child *os.Process, ended <-chan childEnd) *childEnd {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	done := ctx.Done()
	for {
		select {
		case <-tick.C:
			m.add(s.take(ctx))
		case <-done:
			if child == nil {
				m.add(s.take(context.WithoutCancel(ctx)))
				return nil
			}
			done = nil
			// Ctrl-C has reached the child by itself: it is in the terminal's group too.
			if sig, ok := context.Cause(ctx).(os.Signal); ok && sig != os.Interrupt {
				_ = child.Signal(sig) // it may have ended just now
			}
		case end := <-ended:
			m.add(s.take(context.WithoutCancel(ctx)))
			return &end
		}
	}
}

func (m *tally) add(s sample) {
	if s.elapsed <= 0 {
		return
	}
	m.elapsed += s.elapsed
	m.sources[0].add(s.pack, s.elapsed)
	m.sources[1].add(s.dram, s.elapsed)
	m.sources[2].add(s.wall, s.elapsed)
	if s.bmc != nil {
		m.bmc = s.bmcSource
	}
	m.sources[3].add(s.bmc, s.elapsed)
	m.fit.add(s.elapsed, s.behind(), s.bmc)
	m.pack.add(s.pack, s.elapsed)
	if s.hasDRAM {
		m.dramSeen = true
		m.dram.add(s.dram, s.elapsed)
	}
	best, wall := s.best()
	if m.some && wall != m.wall && best != nil {
		best = nil // figures of two different places do not add up
	} else if best != nil {
		m.wall, m.some = wall, true
	}
	m.whole.add(best, s.elapsed)
	if best != nil && (m.peak == nil || *best > *m.peak) && s.elapsed >= m.peakOver/2 {
		m.peak = best
	}
	if s.limited {
		m.limited += s.elapsed
	}
	for i, z := range s.zones {
		if i == len(m.zones) {
			m.zones = append(m.zones, zoneEnergy{Zone: z.zone, Kind: z.kind})
			m.zoneTotals = append(m.zoneTotals, energySum{})
		}
		m.zoneTotals[i].add(z.power, s.elapsed)
	}
}

func (m *tally) result(asked bool, end *childEnd) measured {
	r := measured{
		Kind: "Measurement", API: "v1", TimeS: m.elapsed.Seconds(), EnergyJ: m.whole.joules(), PackageJ: m.pack.joules(), At: "package",
		PeakS: m.peakOver.Seconds(), Zones: append([]zoneEnergy{}, m.zones...),
	}
	if m.dramSeen {
		r.DRAMJ = m.dram.joules()
	}
	if m.wall {
		r.At = "wall"
		if r.EnergyJ != nil && r.PackageJ != nil {
			r.OtherJ = new(*r.EnergyJ - *r.PackageJ - orZero(r.DRAMJ))
		}
	}
	if r.EnergyJ != nil && m.elapsed > 0 {
		r.MeanW = new(m.whole.energy.Over(m.elapsed).Watts())
	}
	if m.peak != nil {
		r.PeakW = new(m.peak.Watts())
	}
	if asked {
		r.LimitedS = new(m.limited.Seconds())
	}
	for i := range r.Zones {
		r.Zones[i].EnergyJ = m.zoneTotals[i].joules()
	}
	if end != nil {
		r.ExitCode = new(end.code)
	}
	r.Sources = []sourceJSON{}
	for i, name := range sourceNames(m.bmc) {
		if x := m.sources[i]; x.elapsed > 0 {
			r.Sources = append(r.Sources, x.row(name))
		}
	}
	if m.bmc != "" {
		r.Fit = new(m.fit.result())
	}
	return r
}

// orZero returns v, or 0 if it is unknown.
func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func printMeasured(w io.Writer, out *cli.Output, r measured) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	unit, by := "kJ", 1e3
	if value := orZero(r.EnergyJ); value < by {
		unit, by = "J", 1
	}
	bare := func(j *float64) string {
		return cli.Opt(j, func(v float64) string { return fmt.Sprintf("%.2f", v/by) })
	}
	parts := "package " + bare(r.PackageJ)
	if r.DRAMJ != nil {
		parts += ", dram " + bare(r.DRAMJ)
	}
	if r.At == "wall" {
		parts += ", other " + bare(r.OtherJ) + " model"
	} else {
		parts += "; no configuration, so without other and supply"
	}
	limited := cli.Opt(r.LimitedS, func(s float64) string { return fmt.Sprintf("   limited %.1f s", s) })
	if r.LimitedS == nil {
		limited = ""
	}
	if _, err := fmt.Fprintf(w, "wall %.1f s   energy %s %s (%s)   mean %s   peak %s (%v)%s\n\n", r.TimeS, bare(r.EnergyJ), unit, parts,
		screenW(r.MeanW), screenW(r.PeakW), time.Duration(r.PeakS*float64(time.Second)), limited); err != nil {
		return err
	}
	rows := each.List(r.Sources, func(s sourceJSON) []string {
		return []string{s.Source, screenW(s.MinW), screenW(&s.MeanW), screenW(s.MaxW)}
	})
	if err := out.Table(w, []string{"SOURCE", "MIN", "MEAN", "MAX"}, rows); err != nil {
		return err
	}
	return printFit(w, r.Fit)
}

func printFit(w io.Writer, f *fitJSON) error {
	if f == nil {
		return nil
	}
	if f.OtherW == nil {
		_, err := fmt.Fprintf(w, "\nfit  none: %s\n", f.Text)
		return err
	}
	_, err := fmt.Fprintf(w, "\nfit  power.other %s, power.supply_efficiency %.3f   (%s)\n", screenW(f.OtherW), *f.Efficiency, f.Text)
	return err
}

// childEnd is the exit of a measured command.
type childEnd struct {
	code   int
	signal string
}

// asError returns the command's exit code as an error, nil if it is 0.
func (e *childEnd) asError(name string) error {
	if e.code == 0 {
		return nil
	}
	how := fmt.Sprintf("exit code %d", e.code)
	if e.signal != "" {
		how = "signal: " + e.signal
	}
	return &cli.Error{Code: "command", Exit: e.code, Message: fmt.Sprintf("%s ended with %s", name, how), Hint: "the measurement above is complete; this is the exit code of the command"}
}

// startChild starts the command to measure.
func startChild(args []string) (*os.Process, error) {
	path, err := findProgram(args[0], os.Getenv("PATH"))
	if err != nil {
		return nil, err
	}
	child, err := os.StartProcess(path, args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, &cli.Error{Code: "usage", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("cannot start %s: %v", args[0], err), Hint: "use a program that this user may run"}
	}
	return child, nil
}

// findProgram returns the file that a shell would run: a path as it is, a name along search.
func findProgram(name, search string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", &cli.Error{Code: "usage", Exit: cli.ExitUsage, Message: name + ": program not found", Hint: "use a program on the PATH, or its path"}
}

// signalBase is added to the number of the signal that ended a command, as shells do.
const signalBase = 128

func waitChild(child *os.Process) childEnd {
	state, err := child.Wait()
	if err != nil {
		return childEnd{code: cli.ExitFailed}
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return childEnd{code: signalBase + int(ws.Signal()), signal: ws.Signal().String()}
	}
	return childEnd{code: state.ExitCode()}
}
