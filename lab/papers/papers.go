// Package papers contains what all studies of the papers share: `powerlab paper`, with one command
// per paper, and the common form of their reports.
//
// The one idea: a paper's number is a target with an id. For each target, a study reports its own
// value with bounds and one of three verdicts, by the same rule on every run, with the reason if it
// is not met. A mutant is a study with one deliberate mistake, which shows which targets detect it.
// A study drives the decisions of production code on the lab's physics, and makes no decisions
// itself.
//
// Guarantees: the form of the report is the same for every paper and only grows. The same seed
// gives the same bytes. Exit code 0 means that no target is short; 8 means that some are, or that a
// mutant was not detected.
package papers

import (
	"github.com/spf13/cobra"
)

// NewCommand is `powerlab paper`, with a command for each study.
func NewCommand(studies ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "paper",
		Short: "Repeat the papers' experiments and compare the results with the papers",
		Long: `Repeats the experiments of one paper per command. The report lists, for each target, the paper's
value, the value measured here, and a verdict:

  met      within the tolerance of the paper's value, or the paper's ordering holds where it gives
           only an ordering
  order    only the ordering or the sign holds
  short    not even the ordering holds
  not_run  not measured by this command

The exit code is 8 if any target is short. The ORACLE column shows the result if every variant had
perfect information; it is not judged.`,
		Example: "  powerlab paper cab\n  powerlab paper cab -o json\n  powerlab paper cab --mutants -o json",
	}
	cmd.AddCommand(studies...)
	return cmd
}
