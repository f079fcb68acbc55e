package command

import (
	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// confirming is the --yes flag of commands that raise a cap or remove a limit.
type confirming struct{ yes bool }

func (c *confirming) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
}

// ask returns nil when the operator has confirmed: with --yes, or with y on a terminal.
func (c *confirming) ask(cmd *cobra.Command, what string) error {
	if c.yes {
		return nil
	}
	return cli.Confirm(cmd, what)
}
