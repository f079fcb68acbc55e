package simulation

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Bounds of the command line.
const (
	maxSchedules = 10_000_000
	minSpan      = time.Second
	maxSpan      = time.Hour
	// progressEvery is how often a long run says how far it is.
	progressEvery = 5 * time.Second
)

// settings are the flags of the command.
type settings struct {
	schedules int
	seed      uint64
	span      time.Duration
	trace     bool
	out       cli.Output
}

// NewCommand is `powerlab simulate`.
func NewCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate clusters under faults and judge the promises at every event",
		Long: "Simulate runs whole clusters in virtual time: the real ledger, plan and lease code, with crashes,\n" +
			"partitions, delays, pauses and clocks that run fast or slow. After every event the caps that the nodes\n" +
			"really hold are judged against the budgets. The same seed gives the same run, on every machine.\n" +
			"Exit code 1 says that a promise was broken; the seed of the violation replays its schedule alone.",
		Example: "  powerlab simulate --schedules 500 --seed 1\n" +
			"  powerlab simulate --schedules 1 --seed 3117946758067592 --trace",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.schedules, "schedules", 100, "how many schedules to run")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the first schedule; the others' are derived from it")
	f.DurationVar(&s.span, "duration", time.Minute, "virtual time of each schedule")
	f.BoolVar(&s.trace, "trace", false, "print what happens, to stderr")
	s.out.Flags(cmd)
	return cmd
}

func (s *settings) check() error {
	switch {
	case s.schedules < 1 || s.schedules > maxSchedules:
		return cli.Usage("--schedules %d: it must be between 1 and %d", s.schedules, maxSchedules)
	case s.span < minSpan || s.span > maxSpan:
		return cli.Usage("--duration %v: it must be between %v and %v", s.span, minSpan, maxSpan)
	}
	return nil
}

func (s *settings) run(cmd *cobra.Command) error {
	if err := s.check(); err != nil {
		return err
	}
	o := Options{Schedules: s.schedules, Seed: s.seed, Span: s.span, Progress: s.progress(cmd.ErrOrStderr())}
	if s.trace {
		o.Trace = cmd.ErrOrStderr()
	}
	cli.Notef(cmd.ErrOrStderr(), "seed %d", s.seed)
	r, err := Run(cmd.Context(), o)
	if err != nil {
		cli.Notef(cmd.ErrOrStderr(), "ended after %d of %d schedules", r.Schedules, s.schedules)
	}
	if perr := s.print(cmd.OutOrStdout(), r); perr != nil {
		return perr
	}
	if err != nil {
		return err
	}
	return verdict(r, s.span)
}

// verdict is the error of a run that broke a promise.
func verdict(r *Report, span time.Duration) error {
	if len(r.Violations) == 0 {
		return nil
	}
	first := r.Violations[0]
	return cli.Failed(
		fmt.Sprintf("powerlab simulate --schedules 1 --seed %d --duration %v --trace", first.Seed, span),
		"%d violations in %d schedules, the first of %s: %s", len(r.Violations), r.Schedules, first.Promise, first.What)
}

// progress tells on stderr how far a long run is.
func (s *settings) progress(w io.Writer) func(int, *Report) {
	last := time.Now()
	return func(done int, r *Report) {
		if now := time.Now(); now.Sub(last) >= progressEvery && done < s.schedules {
			last = now
			cli.Notef(w, "%d of %d schedules, %d events, %d violations", done, s.schedules, r.Events, len(r.Violations))
		}
	}
}

func (s *settings) print(w io.Writer, r *Report) error {
	if s.out.IsJSON() {
		return s.out.JSON(w, r)
	}
	rows := make([][]string, 0, len(r.FaultsHit))
	for _, name := range slices.Sorted(maps.Keys(r.FaultsHit)) {
		rows = append(rows, []string{name, fmt.Sprint(r.FaultsHit[name])})
	}
	if err := s.out.Table(w, []string{"FAULT OR RARE PATH", "HIT"}, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	rows = nil
	for _, v := range r.Violations {
		rows = append(rows, []string{v.Promise, fmt.Sprint(v.Seed), fmt.Sprintf("%.6f", v.At), v.What})
	}
	if len(rows) > 0 {
		if err := s.out.Table(w, []string{"PROMISE", "SEED", "AT_S", "WHAT"}, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "schedules %d, events %d, violations %d, seed %d\n", r.Schedules, r.Events, len(r.Violations), s.seed)
	return err
}
