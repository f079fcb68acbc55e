package simulation

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Bounds of the command line.
const (
	maxSchedules = 10_000_000
	minSpan      = time.Second
	maxSpan      = time.Hour
	// progressEvery is the time between progress notes of a long run.
	progressEvery = 5 * time.Second
)

// settings are the flags of the command.
type settings struct {
	schedules int
	seed      uint64
	span      time.Duration
	only      []string
	keep      []string
	sabotage  string
	sabotages bool
	replay    string
	noShrink  bool
	trace     bool
	out       cli.Output
}

// NewCommand is `powerlab simulate`.
func NewCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate clusters under faults and check the guarantees after every event",
		Long:  help(),
		Example: "  powerlab simulate --schedules 500 --seed 1\n" +
			"  powerlab simulate --schedules 1 --seed 3117946758067592 --trace\n" +
			"  powerlab simulate --only crash,delay,sprint --schedules 100\n" +
			"  powerlab simulate --sabotage refund-twice\n" +
			"  powerlab simulate --sabotage all --seed 42\n" +
			"  powerlab simulate --list-sabotage -o json\n" +
			"  powerlab simulate --replay lab/simulation/testdata/seeds/long-mean.json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.IntVar(&s.schedules, "schedules", 100, "number of schedules (default with --sabotage: 300)")
	f.Uint64Var(&s.seed, "seed", 1, "seed of the first schedule; the other seeds are derived from it")
	f.DurationVar(&s.span, "duration", time.Minute, "virtual time of each schedule")
	f.StringSliceVar(&s.only, "only", nil, "fault classes of every schedule, or none (default: each schedule draws its own)")
	f.StringSliceVar(&s.keep, "keep", nil, "fault occurrences to keep, such as crash#3 (default: all)")
	f.StringVar(&s.sabotage, "sabotage", "", "rule to break on purpose; all: one after the other")
	f.BoolVar(&s.sabotages, "list-sabotage", false, "list the rules that --sabotage can break, and the guarantee that each breaks")
	f.StringVar(&s.replay, "replay", "", "replay the schedule in this file")
	f.BoolVar(&s.noShrink, "no-shrink", false, "do not reduce a schedule that breaks a guarantee")
	f.BoolVar(&s.trace, "trace", false, "print every event to stderr")
	s.out.Flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("replay", "sabotage")
	return cmd
}

// help is the long text of the command.
func help() string {
	return `Simulates whole clusters in virtual time with the real ledger, plan, lease and sprint code, under
crashes, partitions, delays, pauses, wrong clocks, a lost quorum, and operators who change everything.
After every event, the power that the nodes hold and use is checked against the guarantees. The same
seed gives the same run on every machine.

Each schedule is one cluster with some fault classes, drawn from its seed. The first violation is reduced
to the smallest schedule that still shows it, and the command line that replays it is printed. With
-o json that schedule is in the field "shrunk"; saved to a file, it can be replayed with --replay.

The table counts how often each fault and each rare path occurred. A count of 0 means that it was not
tested.

--sabotage breaks one rule of the design on purpose, to test that the checks detect it. The run ends at
the first violation. --list-sabotage lists the rules, each with the guarantee that it breaks and the
production file that is changed. --sabotage all breaks one rule after the other and prints how many
schedules each took. The production code itself is changed, in a separate build with go build -overlay,
so this needs the source tree and a Go toolchain.

Exit codes:
  0    no guarantee was broken; with --sabotage all: every sabotage was detected
  1    a guarantee was broken, which is expected with --sabotage NAME; with all: a sabotage was not detected
  2    error in the command line or in the file of --replay
  130  interrupted

Classes for --only:
` + wrapped(Classes(), 104)
}

// wrapped are the names in lines of at most width bytes.
func wrapped(names []string, width int) string {
	var text strings.Builder
	line := " "
	for _, name := range names {
		if len(line)+1+len(name) > width {
			text.WriteString(line + "\n")
			line = " "
		}
		line += " " + name
	}
	return text.String() + line
}

func (s *settings) check(cmd *cobra.Command) error {
	if s.sabotage != "" && !cmd.Flags().Changed("schedules") {
		s.schedules = sabotageSchedules
	}
	s.only, s.keep = none(s.only), none(s.keep)
	switch {
	case s.schedules < 1 || s.schedules > maxSchedules:
		return cli.Usage("--schedules %d: must be from 1 to %d", s.schedules, maxSchedules)
	case s.span < minSpan || s.span > maxSpan:
		return cli.Usage("--duration %v: must be from %v to %v", s.span, minSpan, maxSpan)
	}
	for _, class := range s.only {
		if !slices.Contains(Classes(), class) {
			return cli.Usage("unknown class in --only %s: must be one of %s", class, strings.Join(Classes(), ", "))
		}
	}
	if _, err := findSabotage(s.sabotage); err != nil && s.sabotage != allSabotages {
		return cli.Usage("--sabotage %v", err)
	}
	return nil
}

// sabotageSchedules is within how many schedules every sabotage is found.
const sabotageSchedules = 300

// none is the list of a flag, where "none" stands for an empty one.
func none(names []string) []string {
	if slices.Equal(names, []string{"none"}) {
		return []string{}
	}
	return names
}

func (s *settings) run(cmd *cobra.Command) error {
	switch err := s.check(cmd); {
	case err != nil:
		return err
	case s.sabotages:
		return s.list(cmd.OutOrStdout())
	case s.replay != "":
		return s.replayFile(cmd)
	case s.sabotage == allSabotages && choose(""):
		return s.breakAll(cmd)
	case s.sabotage != "" && !choose(s.sabotage):
		return runSabotaged(cmd)
	}
	o := Options{
		Schedules: s.schedules, Seed: s.seed, Span: s.span, Only: s.only, Keep: s.keep, Sabotage: s.sabotage,
		Progress: s.progress(cmd.ErrOrStderr()), Trace: s.tracer(cmd),
	}
	cli.Notef(cmd.ErrOrStderr(), "seed %d", s.seed)
	r, err := run(cmd.Context(), o)
	if err != nil {
		cli.Notef(cmd.ErrOrStderr(), "interrupted after %d of %d schedules", r.Schedules, s.schedules)
	} else {
		s.shrink(cmd, o, r)
	}
	if perr := s.print(cmd.OutOrStdout(), r); perr != nil {
		return perr
	}
	if err != nil {
		return err
	}
	return verdict(r, o)
}

func (s *settings) tracer(cmd *cobra.Command) io.Writer {
	if s.trace {
		return cmd.ErrOrStderr()
	}
	return nil
}

// list is --list-sabotage.
func (s *settings) list(w io.Writer) error {
	all := sabotages()
	if s.out.IsJSON() {
		return s.out.JSON(w, struct {
			Items []breach `json:"items"`
		}{all})
	}
	rows := make([][]string, 0, len(all))
	for _, x := range all {
		rows = append(rows, []string{x.Name, x.Breaks, x.File})
	}
	return s.out.Table(w, []string{"NAME", "BREAKS", "FILE"}, rows)
}

// allSabotages is the --sabotage that stands for every one of them.
const allSabotages = "all"

// broken is one sabotage and how it went.
type broken struct {
	Name   string `json:"name"`
	Breaks string `json:"breaks"`
	// Schedules that were run until it was found, or in vain.
	Schedules int  `json:"schedules"`
	Found     bool `json:"found"`
	// What was broken, in words with the numbers; the first violation of its promise.
	What string `json:"what"`
}

// breakAll is --sabotage all.
func (s *settings) breakAll(cmd *cobra.Command) error {
	var list []broken
	var missed []string
	for _, x := range sabotages() {
		o := Options{Schedules: s.schedules, Seed: s.seed, Span: s.span, Only: s.only, Keep: s.keep, Sabotage: x.Name}
		choose(x.Name)
		r, err := run(cmd.Context(), o)
		if err != nil {
			return err
		}
		b := broken{Name: x.Name, Breaks: x.Breaks, Schedules: r.Schedules}
		if len(r.Violations) > 0 && r.first().Promise == x.Breaks {
			b.Found, b.What = true, r.first().What
		} else {
			missed = append(missed, x.Name)
		}
		list = append(list, b)
		cli.Notef(cmd.ErrOrStderr(), "%d of %d sabotages: %s, detected %v in %d schedules", len(list), len(sabotages()), b.Name, b.Found, b.Schedules)
	}
	if err := s.printAll(cmd.OutOrStdout(), list); err != nil {
		return err
	}
	if len(missed) > 0 {
		return cli.Failed("increase --schedules", "not detected in %d schedules: %s", s.schedules, strings.Join(missed, ", "))
	}
	return nil
}

func (s *settings) printAll(w io.Writer, list []broken) error {
	if s.out.IsJSON() {
		return s.out.JSON(w, struct {
			Seed  uint64   `json:"seed"`
			Items []broken `json:"items"`
		}{s.seed, list})
	}
	rows := make([][]string, 0, len(list))
	for _, b := range list {
		rows = append(rows, []string{b.Name, b.Breaks, fmt.Sprint(b.Schedules), map[bool]string{true: "yes", false: "no"}[b.Found]})
	}
	return s.out.Table(w, []string{"NAME", "BREAKS", "SCHEDULES", "FOUND"}, rows)
}

// replayFile is --replay.
func (s *settings) replayFile(cmd *cobra.Command) error {
	f, err := os.Open(s.replay)
	if err != nil {
		return cli.Usage("--replay: %v", err)
	}
	defer func() { _ = f.Close() }()
	x, err := readSchedule(f)
	if err != nil {
		return cli.Usage("--replay %s: %v", s.replay, err)
	}
	if x.Sabotage != "" && !choose(x.Sabotage) {
		return runSabotaged(cmd)
	}
	if x.What != "" {
		cli.Notef(cmd.ErrOrStderr(), "this schedule broke %s when it was saved: %s", x.Promise, x.What)
	}
	r, err := x.replay(s.tracer(cmd))
	if err != nil {
		return cli.Usage("--replay %s: %v", s.replay, err)
	}
	s.seed = x.Seed
	if err := s.print(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	return verdict(r, Options{Span: x.span(), Only: x.Only, Keep: x.Keep, Sabotage: x.Sabotage})
}

// shrink makes the schedule of the first violation as small as it can.
func (s *settings) shrink(cmd *cobra.Command, o Options, r *Report) {
	if len(r.Violations) == 0 || s.noShrink {
		return
	}
	first := r.first()
	cli.Notef(cmd.ErrOrStderr(), "seed %d breaks %s; reducing the schedule", first.Seed, first.Promise)
	x := o.schedule(0)
	x.Seed = first.Seed
	if least, ok := shrink(x, first.Promise); ok {
		r.Shrunk = &least
	}
}

// first is the violation to show: under sabotage the one that it was meant to bring.
func (r *Report) first() Violation {
	sabotage, _ := findSabotage(r.Sabotage)
	for _, v := range r.Violations {
		if v.Promise == sabotage.Breaks {
			return v
		}
	}
	return r.Violations[0]
}

// verdict is the error of a run that broke a promise.
func verdict(r *Report, o Options) error {
	if len(r.Violations) == 0 {
		return nil
	}
	first := r.first()
	again := o.schedule(0)
	again.Seed = first.Seed
	if r.Shrunk != nil {
		again = *r.Shrunk
	}
	return cli.Failed(again.command()+" --trace",
		"%s in %s, %s with seed %d at %.3f s: %s",
		cli.Count(len(r.Violations), "violation"), cli.Count(r.Schedules, "schedule"), first.Promise, first.Seed, first.At, first.What)
}

// progress prints the progress of a long run to stderr.
func (s *settings) progress(w io.Writer) func(int, *Report) {
	last := time.Now()
	return func(done int, r *Report) {
		if now := time.Now(); now.Sub(last) >= progressEvery && done < s.schedules {
			last = now
			cli.Notef(w, "%d of %d schedules, %d events, %s", done, s.schedules, r.Events, cli.Count(len(r.Violations), "violation"))
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
