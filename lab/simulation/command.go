package simulation

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

const (
	minSpan = time.Second
	maxSpan = time.Hour
	// sabotageSchedules is within how many schedules every sabotage is found.
	sabotageSchedules = 300
	// allSabotages is the --sabotage that stands for every one of them.
	allSabotages = "all"
)

const help = `Simulates whole clusters in virtual time with the real ledger, plan, lease and sprint code, under
crashes, partitions, delays, pauses, wrong clocks, a lost quorum, and operators who change everything.
After every event, the power that the nodes hold and use is checked against the guarantees. The same
seed gives the same run on every machine. The table counts how often each fault and each rare path
occurred; a count of 0 means that it was not tested.

With -o json the first violation is reduced to the smallest schedule that still shows it, in the field
"shrunk"; saved to a file, it can be replayed with --replay.

--sabotage breaks one rule of the design on purpose, in the production code of a separate build (this
needs the source tree and a Go toolchain), to test that the checks detect it. The run ends at the first
violation. --sabotage all breaks one rule after the other and prints how many schedules each took.

Exit codes:
  0    no guarantee was broken; with --sabotage all: every sabotage was detected
  1    a guarantee was broken, which is expected with --sabotage NAME; with all: a sabotage was not detected
  2    error in the command line or in the file of --replay
  130  interrupted`

// settings are the flags of the command.
type settings struct {
	Options
	list   bool
	replay string
	trace  bool
	out    cli.Output
}

// NewCommand is `powerlab simulate`.
func NewCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate clusters under faults and check the guarantees after every event",
		Long:  help,
		Example: "  powerlab simulate --schedules 500 --seed 1\n" +
			"  powerlab simulate --schedules 1 --seed 3117946758067592 --trace\n" +
			"  powerlab simulate --sabotage refund-twice\n" +
			"  powerlab simulate --sabotage all --seed 42\n" +
			"  powerlab simulate --list-sabotage -o json\n" +
			"  powerlab simulate --replay lab/simulation/testdata/seeds/long-mean.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.Schedules, "schedules", 100, "number of schedules (default with --sabotage: 300)")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of the first schedule; the other seeds are derived from it")
	f.DurationVar(&s.Span, "duration", time.Minute, "virtual time of each schedule")
	f.StringVar(&s.Sabotage, "sabotage", "", "rule to break on purpose; all: one after the other")
	f.BoolVar(&s.list, "list-sabotage", false, "list the rules that --sabotage can break, and the guarantee that each breaks")
	f.StringVar(&s.replay, "replay", "", "replay the schedule in this file")
	f.BoolVar(&s.trace, "trace", false, "print every event to stderr")
	s.out.Flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("replay", "sabotage")
	return cmd
}

// check completes the settings; x is the schedule of --replay.
func (s *settings) check(cmd *cobra.Command) (x Schedule, err error) {
	if s.Sabotage != "" && !cmd.Flags().Changed("schedules") {
		s.Schedules = sabotageSchedules
	}
	if s.trace {
		s.Trace = cmd.ErrOrStderr()
	}
	if _, ok := findSabotage(s.Sabotage); !ok && s.Sabotage != allSabotages {
		return x, cli.Usage("unknown --sabotage %q: must be one that --list-sabotage shows", s.Sabotage)
	}
	switch {
	case s.Schedules < 1:
		return x, cli.Usage("--schedules %d: must be at least 1", s.Schedules)
	case s.Span < minSpan || s.Span > maxSpan:
		return x, cli.Usage("--duration %v: must be from %v to %v", s.Span, minSpan, maxSpan)
	case s.replay == "":
		return x, nil
	}
	data, err := os.ReadFile(s.replay)
	if err != nil {
		return x, cli.Usage("--replay: %v", err)
	}
	if x, err = readSchedule(data); err != nil {
		return x, cli.Usage("--replay %s: %v", s.replay, err)
	}
	s.Sabotage = x.Sabotage
	return x, nil
}

func (s *settings) run(cmd *cobra.Command) error {
	x, err := s.check(cmd)
	switch {
	case err != nil:
		return err
	case s.list:
		return s.listAll(cmd.OutOrStdout())
	case s.Sabotage != "" && !choose(s.Sabotage):
		return runSabotaged(cmd)
	case s.Sabotage == allSabotages:
		return s.breakAll(cmd)
	case s.replay != "":
		if x.What != "" {
			cli.Notef(cmd.ErrOrStderr(), "this schedule broke %s when it was saved: %s", x.Promise, x.What)
		}
		r := x.replay(s.Trace)
		if err := s.print(cmd.OutOrStdout(), r); err != nil {
			return err
		}
		return verdict(r, "powerlab simulate --trace --replay "+s.replay)
	}
	cli.Notef(cmd.ErrOrStderr(), "seed %d", s.Seed)
	r, err := run(cmd.Context(), s.Options)
	if err != nil {
		cli.Notef(cmd.ErrOrStderr(), "interrupted after %d of %d schedules", r.Schedules, s.Schedules)
	} else if len(r.Violations) > 0 && s.out.IsJSON() {
		cli.Notef(cmd.ErrOrStderr(), "seed %d breaks %s; reducing the schedule", r.first().Seed, r.first().Promise)
		x = s.schedule(0)
		x.Seed = r.first().Seed
		if least, ok := shrink(x, r.first().Promise); ok {
			r.Shrunk = &least
		}
	}
	if perr := s.print(cmd.OutOrStdout(), r); perr != nil || err != nil {
		return cmp.Or(perr, err)
	}
	return verdict(r, s.again())
}

// again is the command line that runs one schedule again, without its seed.
func (s *settings) again() string {
	line := fmt.Sprintf("powerlab simulate --trace --schedules 1 --duration %v", s.Span)
	if s.Sabotage != "" {
		line += " --sabotage " + s.Sabotage
	}
	return line
}

// listAll is --list-sabotage.
func (s *settings) listAll(w io.Writer) error {
	var rows [][]string
	for _, x := range sabotages() {
		rows = append(rows, []string{x.Name, x.Breaks, x.File})
	}
	return s.table(w, map[string]any{"items": sabotages()}, []string{"NAME", "BREAKS", "FILE"}, rows)
}

// table prints a value as JSON, or else rows.
func (s *settings) table(w io.Writer, v any, head []string, rows [][]string) error {
	if s.out.IsJSON() {
		return s.out.JSON(w, v)
	}
	return s.out.Table(w, head, rows)
}

// broken is one sabotage and how it went: within how many schedules it was found, if it was, and what it broke.
type broken struct {
	Name      string `json:"name"`
	Breaks    string `json:"breaks"`
	Schedules int    `json:"schedules"`
	Found     bool   `json:"found"`
	What      string `json:"what"`
}

// breakAll is --sabotage all.
func (s *settings) breakAll(cmd *cobra.Command) error {
	list := struct {
		Seed  uint64   `json:"seed"`
		Items []broken `json:"items"`
	}{Seed: s.Seed}
	var missed []string
	var rows [][]string
	for i, x := range sabotages() {
		choose(x.Name)
		s.Sabotage = x.Name
		r, err := run(cmd.Context(), s.Options)
		if err != nil {
			return err
		}
		b, found := broken{Name: x.Name, Breaks: x.Breaks, Schedules: r.Schedules}, "no"
		if len(r.Violations) > 0 && r.first().Promise == x.Breaks {
			b.Found, b.What, found = true, r.first().What, "yes"
		} else {
			missed = append(missed, x.Name)
		}
		list.Items, rows = append(list.Items, b), append(rows, []string{b.Name, b.Breaks, fmt.Sprint(b.Schedules), found})
		cli.Notef(cmd.ErrOrStderr(), "%d of %d sabotages: %s, detected %v in %d schedules", i+1, len(sabotages()), b.Name, b.Found, b.Schedules)
	}
	if err := s.table(cmd.OutOrStdout(), list, []string{"NAME", "BREAKS", "SCHEDULES", "FOUND"}, rows); err != nil {
		return err
	}
	if len(missed) > 0 {
		return cli.Failed("increase --schedules", "not detected in %d schedules: %s", s.Schedules, strings.Join(missed, ", "))
	}
	return nil
}

// first is the violation to show: under sabotage the one that it was meant to bring.
func (r *Report) first() Violation {
	sabotage, _ := findSabotage(r.Sabotage)
	i := slices.IndexFunc(r.Violations, func(v Violation) bool { return v.Promise == sabotage.Breaks })
	return r.Violations[max(0, i)]
}

// verdict is the error of a run that broke a promise; again is a command line that runs it again with its seed.
func verdict(r *Report, again string) error {
	if len(r.Violations) == 0 {
		return nil
	}
	first := r.first()
	return cli.Failed(fmt.Sprintf("%s --seed %d", again, first.Seed), "%s in %s, %s with seed %d at %.3f s: %s",
		cli.Count(len(r.Violations), "violation"), cli.Count(r.Schedules, "schedule"), first.Promise, first.Seed, first.At, first.What)
}

func (s *settings) print(w io.Writer, r *Report) error {
	var hits, broken [][]string
	for _, name := range sortedKeys(r.FaultsHit) {
		hits = append(hits, []string{name, fmt.Sprint(r.FaultsHit[name])})
	}
	for _, v := range r.Violations {
		broken = append(broken, []string{v.Promise, fmt.Sprint(v.Seed), fmt.Sprintf("%.6f", v.At), v.What})
	}
	if err := s.table(w, r, []string{"FAULT OR RARE PATH", "HIT"}, hits); err != nil || s.out.IsJSON() {
		return err
	}
	_, _ = fmt.Fprintln(w)
	if len(broken) > 0 {
		if err := s.out.Table(w, []string{"PROMISE", "SEED", "AT_S", "WHAT"}, broken); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "schedules %d, events %d, violations %d, seed %d\n", r.Schedules, r.Events, len(r.Violations), r.Seed)
	return err
}
