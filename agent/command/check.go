package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Outcomes of one check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "FAIL"
)

// finding is the outcome of one check.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	Text  string `json:"text"`
	Hint  string `json:"hint"`
}

func newCheckCommand() *cobra.Command {
	var p place
	var out cli.Output
	nagios, probe := false, false
	cmd := &cobra.Command{
		Use: "check", Short: "Look whether this machine can be held at a cap, and by what it may be disturbed",
		Long: "Look at kernel, permissions, BIOS lock, rival writers, sensors, the BMC, the ladder of controls, which\n" +
			"of them may be written, the clock, the leader, the state directory, the configuration, and whether the budget has room for this node without a\n" +
			"cap. Nothing is written, unless --probe is given: then each package's limit is saved, lowered by a\n" +
			"fraction of a watt, read back and put back, which shows a lock that reading cannot show.\n" +
			"Exit code 1 with failures, 8 with warnings only; with --nagios 0, 1 (warning), 2 (critical) or 3 (unknown).",
		Example: "  powerd check\n  powerd check --probe\n  powerd check --root n01/root -o json\n  powerd check --nagios",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := checkAll(cmd.Context(), &p, probe)
			if nagios {
				return reportNagios(cmd.OutOrStdout(), found)
			}
			return report(cmd.OutOrStdout(), &out, found)
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	cmd.Flags().BoolVar(&nagios, "nagios", false, "one line and the exit codes of a Nagios plugin")
	cmd.Flags().BoolVar(&probe, "probe", false, "lower each package's limit by a fraction of a watt and put it back; needs powerd stopped")
	return cmd
}

// checkAll runs every check. One that cannot be run says so and stops no other.
func checkAll(ctx context.Context, p *place, probe bool) []finding {
	config, s := checkConfig(p)
	found := []finding{config}
	s.status = answering(ctx, s.stateDir)
	o, err := openOwn(s.root)
	if err != nil {
		return append(found, finding{"kernel", checkFail, err.Error(), "--root must name a directory that holds sys, proc and etc; on a real machine it is /"})
	}
	found = append(found, checkKernel(o), checkPermission(s, o), checkLock(s, o, probe), checkRivals(s), checkSensor(ctx, s, o), checkBMC(ctx, s), checkLadder(s, o), checkControls(s, o), checkClock(s))
	found = append(found, checkStateDir(s), checkBrake(s))
	found = append(found, checkLeader(ctx, s)...)
	_ = o.close()
	return found
}

// checkConfig is the first check: the others stand on what it finds.
func checkConfig(p *place) (finding, site) {
	s, err := p.settle()
	switch {
	case err != nil:
		e := cli.Error{Message: err.Error()}
		if found, ok := errors.AsType[*cli.Error](err); ok {
			e.Hint = found.Hint
		}
		bare := site{root: "/", stateDir: p.stateDir}
		if p.root != "" {
			bare.root = p.root
		}
		return finding{"config", checkFail, e.Message, e.Hint}, bare
	case s.cfg == nil && p.root != "":
		return finding{"config", checkOK, "none: only the tree below " + s.root + " is looked at", ""}, s
	case s.cfg == nil:
		return finding{"config", checkWarn, "no " + p.config, "powerd config example > " + defaultConfig + ", then set node, domain and power"}, s
	}
	what := "observe only"
	if s.cfg.Enforce {
		what = "holds caps"
	}
	return finding{"config", checkOK, fmt.Sprintf("%s: node %s in %s, %s", p.config, s.cfg.Node, s.cfg.Domain, what), ""}, s
}

// counts are the numbers of failures and warnings.
func counts(found []finding) (failed, warned int) {
	for _, f := range found {
		switch f.State {
		case checkFail:
			failed++
		case checkWarn:
			warned++
		}
	}
	return failed, warned
}

// checkJSON is `powerd check -o json`.
type checkJSON struct {
	cli.List[finding]

	Failed   int `json:"failed"`
	Warnings int `json:"warnings"`
}

func report(w io.Writer, out *cli.Output, found []finding) error {
	failed, warned := counts(found)
	if out.IsJSON() {
		if err := out.JSON(w, checkJSON{cli.NewList("Check", found), failed, warned}); err != nil {
			return err
		}
		return verdict(failed, warned)
	}
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "%-5s %-11s %s\n", f.State, f.Check, f.Text); err != nil {
			return err
		}
		if f.Hint == "" || f.State == checkOK {
			continue
		}
		if _, err := fmt.Fprintf(w, "      hint: %s\n", f.Hint); err != nil {
			return err
		}
	}
	return verdict(failed, warned)
}

func verdict(failed, warned int) error {
	e := &cli.Error{Message: outcome(failed, warned)}
	switch {
	case failed > 0:
		e.Code, e.Exit, e.Hint = "check-failed", cli.ExitFailed, "each FAIL line above is followed by a way out"
	case warned > 0:
		e.Code, e.Exit, e.Hint = "check-warned", cli.ExitDegraded, "powerd can run; each warn line above is followed by a way out"
	default:
		return nil
	}
	return e
}

// outcome returns the numbers of failures and warnings in words.
func outcome(failed, warned int) string {
	return fmt.Sprintf("%s, %s", plural(failed, "check failed", "checks failed"), plural(warned, "warning", "warnings"))
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Exit codes of Nagios plugins, which are not those of Headroom.
const (
	nagiosWarning  = 1
	nagiosCritical = 2
)

// reportNagios is one line for a monitoring system.
func reportNagios(w io.Writer, found []finding) error {
	failed, warned := counts(found)
	word, code, exit := "OK", "", 0
	switch {
	case failed > 0:
		word, code, exit = "CRITICAL", "check-failed", nagiosCritical
	case warned > 0:
		word, code, exit = "WARNING", "check-warned", nagiosWarning
	}
	worst := fmt.Sprintf("%d checks passed", len(found))
	for _, state := range []string{checkFail, checkWarn} {
		if at := slices.IndexFunc(found, func(f finding) bool { return f.State == state }); at >= 0 {
			worst = found[at].Check + ": " + found[at].Text
			break
		}
	}
	if _, err := fmt.Fprintf(w, "POWERD %s - %s | failed=%d warnings=%d\n", word, worst, failed, warned); err != nil || exit == 0 {
		return err
	}
	return &cli.Error{
		Code: code, Exit: exit, Message: outcome(failed, warned), Hint: "powerd check prints a hint for each",
	}
}
