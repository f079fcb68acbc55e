package command

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"headroom/agent/status"
	"headroom/internal/cli"
)

func newSensorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sensor", Short: "Show the sensors of power and temperature",
		Example: "  powerd sensor list\n  powerd sensor watch",
	}
	cmd.AddCommand(newSensorListCommand("list", false), newSensorListCommand("watch", true))
	return cmd
}

// newSensorListCommand is `sensor list`, or `sensor watch` which goes on.
func newSensorListCommand(use string, goesOn bool) *cobra.Command {
	var p shown
	p.watch.On = goesOn
	short := "List all sensors of power and temperature"
	if goesOn {
		short = "Print the sensors at an interval, with -o json one object per line"
	}
	cmd := &cobra.Command{
		Use: use, Short: short,
		Long: short + ".\n\nSources are rapl, dcmi, sdr, hwmon, thermal and model. AGE is the age of the value, DIFFERS its difference\n" +
			"to the power that powerd uses. Figures come from the running powerd; if none runs, only the energy\n" +
			"counters of the machine are read.",
		Example: "  powerd sensor " + use + "\n  powerd sensor " + use + " -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listSensors(cmd, &p) },
	}
	p.flags(cmd)
	if goesOn {
		p.watch.Pace(cmd, "time between two updates, at least 250ms")
	} else {
		p.watch.Flags(cmd)
	}
	return cmd
}

func listSensors(cmd *cobra.Command, p *shown) (err error) {
	s, err := p.find(cmd.Context())
	if err != nil {
		return err
	}
	var o *own
	if s.status == nil {
		if o, err = openOwn(s.root); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.close()) }()
		noteBare(cmd.ErrOrStderr(), s, o)
		o.look()
		if err := awaitLook(cmd.Context(), cli.WatchLeast); err != nil {
			return err
		}
	}
	return p.watch.Run(cmd, func() error {
		if s.status != nil {
			if s.status, err = fetchStatus(cmd.Context(), s.stateDir); err != nil {
				return err
			}
		}
		rows := sensorRows(s, o)
		return p.print(cmd, cli.NewList("SensorList", rows), func(w io.Writer) error { return printSensors(w, &p.out, rows) })
	})
}

// sensorRows returns the sensors as the running powerd reports them, or the counters of
// the machine.
func sensorRows(s site, o *own) []sensorJSON {
	if o == nil {
		return cli.Filled[sensorJSON](s.status.GetSensors())
	}
	var rows []sensorJSON
	o.look()
	for i, z := range o.zones() {
		row := sensorJSON{Source: "rapl", Sensor: z.Label, State: "unknown", Text: "counter not readable, or reset"}
		if p := o.powers[i]; p != nil {
			row.PowerW, row.AgeS, row.State, row.Text = new(p.Watts()), new(0.0), status.OK, ""
		}
		if o.still[i] {
			row.State, row.Text = "stale", stillWords
		}
		rows = append(rows, row)
	}
	return rows
}

func printSensors(w io.Writer, out *cli.Output, rows []sensorJSON) error {
	lines := make([][]string, 0, len(rows))
	for _, r := range rows {
		temp := cli.Opt(r.TempC, func(c float64) string { return celsius(int64(c * 1000)) })
		lines = append(lines, []string{r.Source, r.Sensor, screenW(r.PowerW), temp, screenAge(r.AgeS), cli.Opt(r.Disagreement, cli.Percent), r.State, r.Text})
	}
	return out.TableOf(w, cli.Table{Head: []string{"SOURCE", "SENSOR", "POWER", "TEMP", "AGE", "DIFFERS", "STATE", "WHY"}, Rows: lines, Noun: "sensor"})
}
