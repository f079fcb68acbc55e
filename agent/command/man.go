package command

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"headroom/agent/metrics"
	"headroom/internal/cli"
)

//go:generate go run headroom/cmd/powerd docs ../../docs

// newDocsCommand writes what is generated from the program itself. It is hidden:
// an operator has the pages already.
func newDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "docs DIR", Short: "Write the manual pages and the list of metrics below a folder", Hidden: true,
		Example: "  powerd docs ../docs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for name, text := range generatedDocs() {
				path := filepath.Join(args[0], name)
				errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			cli.Notef(cmd.ErrOrStderr(), "note: wrote the pages below %s", args[0])
			return nil
		},
	}
}

// generatedDocs are the pages that follow from the program, by their place below docs/.
func generatedDocs() map[string]string {
	root := New()
	return map[string]string{
		"man/powerd.8":      manProgram(root),
		"man/powerd.yaml.5": manConfig(),
		"metrics.md":        metrics.Page(),
	}
}
