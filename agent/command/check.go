package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"headroom/agent/config"
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
		Use: "check", Short: "Check whether this machine can enforce a power cap",
		Long: "Check kernel, permissions, firmware locks, other programs that write the same controls, sensors, BMC,\n" +
			"available controls, clock, state directory, configuration and leader, and whether the budget has room for\n" +
			"this node without a cap. Nothing is written unless --probe is given: it saves each package's limit,\n" +
			"lowers it by a fraction of a watt, reads it back and restores it. Only that detects some firmware locks.\n\n" +
			"Exit code: 1 on a failure, 8 on warnings only; with --nagios 0 (OK), 1 (warning), 2 (critical) or 3\n(unknown).",
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
	cmd.Flags().BoolVar(&nagios, "nagios", false, "print one line and use the exit codes of a Nagios plugin")
	cmd.Flags().BoolVar(&probe, "probe", false, "lower each package's limit by a fraction of a watt and restore it (powerd must be stopped)")
	return cmd
}

// checkAll runs every check. A check that could not run reports that; the others go on.
func checkAll(ctx context.Context, p *place, probe bool) []finding {
	first, s := checkConfig(p)
	found := []finding{first}
	var why error
	if s.status, why = answering(ctx, s.stateDir); why != nil {
		found = append(found, finding{"powerd", checkFail, "runs and does not answer: " + oneLine(why), cmp.Or(config.HintOf(why), "see the log of powerd; the checks below read the machine itself")})
	}
	o, err := openOwn(s.root)
	if err != nil {
		return append(found, finding{"kernel", checkFail, err.Error(), "--root must be a directory that contains sys, proc and etc; on a real machine it is /"})
	}
	found = append(found, checkKernel(o), checkPermission(s, o), checkLock(s, o, probe), checkRivals(s), checkSensor(ctx, s, o), checkBMC(ctx, s), checkLadder(s, o), checkControls(s, o), checkClock(s))
	found = append(found, checkStateDir(s), checkBrake(s), checkIdentity(s))
	found = append(found, checkMachineID(o)...)
	found = append(found, checkLeader(ctx, s)...)
	_ = o.close()
	return found
}

// checkConfig is the first check; the others use the configuration that it finds.
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
		return finding{"config", checkOK, "none; only the tree below " + s.root + " is checked", ""}, s
	case s.cfg == nil:
		return finding{"config", checkWarn, "no " + p.config, "create it with powerd config example > " + defaultConfig + ", then set domain and power"}, s
	}
	what := "observes only"
	if s.cfg.Enforce {
		what = "enforces caps"
	}
	return finding{"config", checkOK, fmt.Sprintf("%s: node %s in %s, %s", p.config, s.cfg.Node, s.cfg.Domain, what), ""}, s
}

// counts returns the numbers of failures and warnings.
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
		e.Code, e.Exit, e.Hint = "check-failed", cli.ExitFailed, "see the hint below each FAIL line"
	case warned > 0:
		e.Code, e.Exit, e.Hint = "check-warned", cli.ExitDegraded, "powerd can run; see the hint below each warn line"
	default:
		return nil
	}
	return e
}

// outcome returns the numbers of failures and warnings in words.
func outcome(failed, warned int) string {
	switch {
	case failed == 0:
		return plural(warned, "warning", "warnings")
	case warned == 0:
		return plural(failed, "check failed", "checks failed")
	}
	return plural(failed, "check failed", "checks failed") + ", " + plural(warned, "warning", "warnings")
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

// reportNagios prints one line for a monitoring system.
func reportNagios(w io.Writer, found []finding) error {
	failed, warned := counts(found)
	word, code, exit := "OK", "", 0
	switch {
	case failed > 0:
		word, code, exit = "CRITICAL", "check-failed", nagiosCritical
	case warned > 0:
		word, code, exit = "WARNING", "check-warned", nagiosWarning
	}
	worst := plural(len(found), "check passed", "checks passed")
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
