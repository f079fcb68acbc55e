package testkit

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Run runs a command of powerlab in this process, with a text on its stdin.
func Run(tb testing.TB, cmd *cobra.Command, stdin string, args ...string) (exit int, stdout, stderr string) {
	tb.Helper()
	root := &cobra.Command{Use: "powerlab"}
	root.AddCommand(cmd)
	root.SetIn(strings.NewReader(stdin))
	var out, errs bytes.Buffer
	exit = cli.Run(tb.Context(), root, append([]string{cmd.Name()}, args...), &out, &errs)
	return exit, out.String(), errs.String()
}
