// Package manual writes the manual pages of Headroom's programs and the schemas of
// their configuration files from the programs themselves.
//
// The one idea: what is documented stands in one place. A command says what it does
// where it is defined, a key of a configuration in the comment of the example that
// "config example" prints; the pages, the schema for editors and the help text
// follow. A page that lies is a test that fails: Write and Stale take the same pages.
//
// It knows no program: each hands in its command tree (Program), its configuration
// (File), or a text with its words (Concepts).
package manual

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Item is a term and what it means, a sentence or more.
type Item struct{ Term, Text string }

// Pages are texts by their path below the folder docs.
type Pages map[string]string

// Write writes the pages below dir.
func (p Pages) Write(dir string) error {
	var errs []error
	for name, text := range p {
		path := filepath.Join(dir, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// Stale are the names of the pages that dir does not have as they are here, sorted.
func (p Pages) Stale(dir string) []string {
	var stale []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != p[name] {
			stale = append(stale, name)
		}
	}
	return stale
}

// Command is the hidden command that writes a program's pages: an operator has them already.
func Command(program string, pages func(dir string) (Pages, error)) *cobra.Command {
	return &cobra.Command{
		Use: "docs DIR", Short: "Write the pages that follow from the program below a folder", Hidden: true,
		Example: "  " + program + " docs ../docs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := pages(args[0])
			if err != nil {
				return err
			}
			if err := all.Write(args[0]); err != nil {
				return fmt.Errorf("write pages: %w", err)
			}
			cli.Notef(cmd.ErrOrStderr(), "note: wrote the pages below %s", args[0])
			return nil
		},
	}
}
