package command

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// printer prints one answer: JSON (one line of it in a watch) or text.
type printer struct {
	out   cli.Output
	watch cli.Watch
}

func (p *printer) print(cmd *cobra.Command, v any, text func(io.Writer) error) error {
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
