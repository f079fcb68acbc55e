package command

import (
	"bufio"
	"strings"

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
	if !cli.IsTerminal(cmd.InOrStdin()) {
		return &cli.Error{Code: "unconfirmed", Exit: cli.ExitUsage, Message: "confirmation required: " + what, Hint: "use --yes for non-interactive use"}
	}
	cli.Notef(cmd.ErrOrStderr(), "%s? [y/N] ", what)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err == nil && strings.EqualFold(strings.TrimSpace(line), "y") {
		return nil
	}
	return &cli.Error{Code: "unconfirmed", Exit: cli.ExitFailed, Message: "not confirmed: " + what, Hint: "answer y, or use --yes"}
}
