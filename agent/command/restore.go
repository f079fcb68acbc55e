package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/originals"
	"headroom/internal/cli"
)

func newRestoreCommand() *cobra.Command {
	var p changes
	force := false
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore every limit to its value before powerd first wrote it",
		Long: "Restore every limit to its value before powerd first wrote it, after the coordinator has released this\n" +
			"node and charged it its rated power. Without a release nothing changes, unless --force is given.\n" +
			"A running powerd does it and then observes until it is restarted; if none runs, this command does it.\n" +
			"Restoring removes the cap, so it asks for confirmation; use --yes in a script.",
		Example: "  powerd limit restore --yes --reason \"taking n03 out of service\"\n  powerd limit restore --yes --force",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return restore(cmd, &p, agent.RestoreOptions{Force: force, Change: p.change()})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "restore without a release; the coordinator keeps charging the last cap")
	return p.confirmed(cmd)
}

// restore restores the originals and prints the outcome.
func restore(cmd *cobra.Command, p *changes, o agent.RestoreOptions) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("restore the original limits of %s, which removes its cap (rated %s)", cfg.Node, cli.Watts(cfg.Power.Rated))
	if o.Force {
		what += ", without a release"
	}
	if err := p.sure(cmd, what); err != nil {
		return err
	}
	done, err := agent.Restore(cmd.Context(), cfg, o)
	if err != nil {
		return err
	}
	return printOutcome(cmd.OutOrStdout(), &p.out, done)
}

// printOutcome prints one line for each control, and one for many that are alike. Controls that were not restored make
// the outcome "done but degraded".
func printOutcome(w io.Writer, out *cli.Output, o originals.Outcome) error {
	if out.IsJSON() {
		err := out.JSON(w, map[string][]string{"restored": append([]string{}, o.Restored...), "kept": append([]string{}, o.Kept...)})
		return errors.Join(err, degraded(o))
	}
	if len(o.Restored)+len(o.Kept) == 0 {
		_, err := io.WriteString(w, "nothing to restore: no limits are saved\n")
		return err
	}
	for _, line := range originals.Alike(o.Restored) {
		if _, err := fmt.Fprintf(w, "restored  %s\n", line); err != nil {
			return err
		}
	}
	for _, line := range originals.Alike(o.Kept) {
		if _, err := fmt.Fprintf(w, "kept      %s\n", line); err != nil {
			return err
		}
	}
	return degraded(o)
}

// degraded returns the error of an outcome in which not every control was restored.
func degraded(o originals.Outcome) error {
	if len(o.Kept) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "degraded", Exit: cli.ExitDegraded,
		Message: fmt.Sprintf("%d of %d controls were not restored", len(o.Kept), len(o.Kept)+len(o.Restored)),
		Hint:    "the lines above give the reasons; a value that another program wrote is kept",
	}
}
