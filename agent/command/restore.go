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
	var p place
	var out cli.Output
	var c changing
	force := false
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Put every limit back to what it was before powerd first wrote it",
		Long: "Put every limit back to what it was before powerd first wrote it, once the coordinator has committed that this node is released\n" +
			"and charged its rated watts. Works with powerd running, which then only observes until it is\n" +
			"started again, and with powerd dead. Without a release nothing changes, unless forced.",
		Example: "  powerd limit restore --reason \"taking n03 out of service\"\n  powerd limit restore --force",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return restore(cmd, &p, &out, agent.RestoreOptions{Force: force, Change: c.change()})
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	c.flags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "do not ask the coordinator: it goes on charging this node what it last held")
	return cmd
}

// restore puts the originals back and prints what came of it.
func restore(cmd *cobra.Command, p *place, out *cli.Output, o agent.RestoreOptions) error {
	cfg, err := p.load()
	if err != nil {
		return err
	}
	done, err := agent.Restore(cmd.Context(), cfg, o)
	if err != nil {
		return err
	}
	return printOutcome(cmd.OutOrStdout(), out, done)
}

// printOutcome prints one line a control. Controls that did not go back make it
// "done but degraded".
func printOutcome(w io.Writer, out *cli.Output, o originals.Outcome) error {
	if out.IsJSON() {
		err := out.JSON(w, map[string][]string{"restored": append([]string{}, o.Restored...), "kept": append([]string{}, o.Kept...)})
		return errors.Join(err, degraded(o))
	}
	if len(o.Restored)+len(o.Kept) == 0 {
		_, err := io.WriteString(w, "nothing to restore: no limit is saved\n")
		return err
	}
	for _, line := range o.Restored {
		if _, err := fmt.Fprintf(w, "restored  %s\n", line); err != nil {
			return err
		}
	}
	for _, line := range o.Kept {
		if _, err := fmt.Fprintf(w, "kept      %s\n", line); err != nil {
			return err
		}
	}
	return degraded(o)
}

// degraded is the error of an outcome in which not every control went back.
func degraded(o originals.Outcome) error {
	if len(o.Kept) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "degraded", Exit: cli.ExitDegraded,
		Message: fmt.Sprintf("%d of %d controls were not put back", len(o.Kept), len(o.Kept)+len(o.Restored)),
		Hint:    "the lines above say why; what another program wrote is left to that program",
	}
}
