package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Version of the programs: those of one build have one.
const Version = "0.1.0"

// VersionCommand is "PROGRAM version"; "--version" prints the same line.
func VersionCommand(program string) *cobra.Command {
	var out Output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  " + program + " version\n  " + program + " version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), map[string]string{"program": program, "version": Version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), program, Version)
			return err
		},
	}
	out.Flags(cmd)
	return cmd
}
