package command

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/units"
)

func newRecordCommand() *cobra.Command {
	var p place
	format, file := "csv", ""
	lasts, interval := time.Duration(0), time.Second
	cmd := &cobra.Command{
		Use: "record", Short: "Record power as a time series",
		Long: "Record power as a time series: one line for each interval, in CSV or as one JSON object per line. Values\n" +
			"are means over the interval; an unknown value is empty in CSV and null in JSON.",
		Example: "  powerd record --for 60s --out power.csv\n  powerd record --for 10s --interval 250ms -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !slices.Contains([]string{"csv", "json"}, format):
				return cli.Usage("-o %s: use csv or json", format)
			case lasts <= 0:
				e := cli.Usage("--for is required: a recording must end")
				e.Hint = "add a duration, for example --for 60s"
				return e
			case interval < lookMin || interval > lasts:
				return cli.Usage("--interval %v: must be at least %v and at most --for, %v", interval, lookMin, lasts)
			}
			return recordTo(cmd, &p, format, file, lasts, interval)
		},
	}
	p.flags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration, for example 60s (required)")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two samples, at least 50ms")
	cmd.Flags().StringVarP(&format, "output", "o", "csv", "output format: csv|json")
	cmd.Flags().StringVar(&file, "out", "", "file to write (default: stdout)")
	return cmd
}

func recordTo(cmd *cobra.Command, p *place, format, file string, lasts, interval time.Duration) (err error) {
	s, err := p.sampler(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	w := cmd.OutOrStdout()
	if file != "" {
		f, err := createOut(file, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	lines, err := recordSeries(cmd.Context(), s, newSeries(w, format), lasts, interval)
	s.own.noteStill(cmd.ErrOrStderr())
	if file != "" && err == nil {
		cli.Notef(cmd.ErrOrStderr(), "note: wrote %d lines to %s", lines, file)
	}
	return err
}

// recordSeries writes samples until the time is up. It returns the number of lines.
func recordSeries(ctx context.Context, s *sampler, to *series, lasts, interval time.Duration) (int, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	lines := 0
	for range int(lasts / interval) {
		select {
		case <-ctx.Done():
			return lines, ctx.Err()
		case <-tick.C:
			if err := to.write(s.take(ctx)); err != nil {
				return lines, err
			}
			lines++
		}
	}
	return lines, nil
}

// series writes samples as lines.
type series struct {
	w       *bufio.Writer
	asJSON  bool
	elapsed time.Duration
	zones   []string // of the first sample: the columns stay
}

func newSeries(w io.Writer, format string) *series {
	return &series{w: bufio.NewWriter(w), asJSON: format == "json"}
}

// sampleJSON is one line of `powerd record -o json`.
type sampleJSON struct {
	Time     string              `json:"time"`
	ElapsedS float64             `json:"elapsed_s"`
	WallW    *float64            `json:"wall_w"`
	PackageW *float64            `json:"package_w"`
	DRAMW    *float64            `json:"dram_w"`
	CapW     *float64            `json:"cap_w"`
	Zones    map[string]*float64 `json:"zones_w"`
}

func (s *series) write(m sample) error {
	s.elapsed += m.elapsed
	line := sampleJSON{
		Time: m.at.Format(time.RFC3339Nano), ElapsedS: s.elapsed.Seconds(), WallW: inWatts(m.wall), PackageW: inWatts(m.pack), DRAMW: inWatts(m.dram),
		CapW: inWatts(m.limit), Zones: map[string]*float64{},
	}
	first := s.zones == nil
	if first {
		s.zones = []string{}
	}
	for _, z := range m.zones {
		line.Zones[z.zone] = inWatts(z.power)
		if first {
			s.zones = append(s.zones, z.zone)
		}
	}
	var err error
	if s.asJSON {
		err = json.NewEncoder(s.w).Encode(line)
	} else {
		err = s.writeCSV(line, first)
	}
	return cmp.Or(err, s.w.Flush())
}

func (s *series) writeCSV(line sampleJSON, first bool) error {
	c := csv.NewWriter(s.w)
	if first {
		head := []string{"time", "elapsed_s", "wall_w", "package_w", "dram_w", "cap_w"}
		for _, z := range s.zones {
			head = append(head, z+"_w")
		}
		if err := c.Write(head); err != nil {
			return err
		}
	}
	row := []string{line.Time, fmt.Sprintf("%.3f", line.ElapsedS), cell(line.WallW), cell(line.PackageW), cell(line.DRAMW), cell(line.CapW)}
	for _, z := range s.zones {
		row = append(row, cell(line.Zones[z]))
	}
	if err := c.Write(row); err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// cell returns a value in CSV, empty if it is unknown.
func cell(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

func inWatts(p *units.Power) *float64 {
	if p == nil {
		return nil
	}
	return new(p.Watts())
}
