package command

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// shown holds the flags of a command that shows something of a node: JSON (one line of it in a watch) or text.
type shown struct {
	place
	out   cli.Output
	watch cli.Watch
}

func (p *shown) flags(cmd *cobra.Command) {
	p.place.flags(cmd)
	p.out.Flags(cmd)
}

// watched adds all flags to a command that can repeat its output.
func (p *shown) watched(cmd *cobra.Command) *cobra.Command {
	p.flags(cmd)
	p.watch.Flags(cmd)
	return cmd
}

// changes holds the flags of a command that changes a node.
type changes struct {
	place
	changing
	out cli.Output
	yes bool
}

func (p *changes) flags(cmd *cobra.Command) *cobra.Command {
	p.place.flags(cmd)
	p.out.Flags(cmd)
	p.changing.flags(cmd)
	return cmd
}

// confirmed adds all flags to a command that raises a cap or removes a limit.
func (p *changes) confirmed(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&p.yes, "yes", "y", false, "do not ask for confirmation")
	return p.flags(cmd)
}

// sure returns nil when the operator has confirmed: with --yes, or with y on a terminal.
func (p *changes) sure(cmd *cobra.Command, what string) error {
	if p.yes {
		return nil
	}
	return cli.Confirm(cmd, what)
}

func (p *shown) print(cmd *cobra.Command, v any, text func(io.Writer) error) error {
	return p.out.Print(cmd, &p.watch, v, text)
}

// createOut creates or truncates the file of --out.
func createOut(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return nil, &cli.Error{Code: "usage", Exit: cli.ExitUsage, Err: err, Message: "--out: " + err.Error(), Hint: "use a file that this user may write"}
	}
	return f, nil
}
