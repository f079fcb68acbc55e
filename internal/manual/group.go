package manual

import (
	"io"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/config"
)

// Group are the commands about a configuration file: check, which each program has of
// its own, and show, schema and example, which follow from the file. load reads the file
// that flags name; out are the program's own flags of output, nil when show has its own.
func (f File) Group(check *cobra.Command, flags func(*cobra.Command), load func() (any, error), out *cli.Output) *cobra.Command {
	group := &cobra.Command{
		Use: "config", Short: "Check or print the configuration file",
		Example: "  " + f.Program + " config example > " + f.Name + "\n  " + f.Program + " config check --config " + f.Name,
	}
	group.AddCommand(check, f.show(flags, load, out), f.schemaCommand(), f.example())
	return group
}

func (f File) show(flags func(*cobra.Command), load func() (any, error), out *cli.Output) *cobra.Command {
	own := out == nil
	if own {
		out = &cli.Output{}
	}
	cmd := &cobra.Command{
		Use: "show", Short: "Print the configuration in force, with the defaults of keys that the file does not have", Args: cobra.NoArgs,
		Example: "  " + f.Program + " config show --config " + f.Name + "\n  " + f.Program + " config show -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load()
			if err != nil {
				return err
			}
			return config.Show(cmd.OutOrStdout(), c, out.Format == "json")
		},
	}
	flags(cmd)
	if own {
		out.Flags(cmd)
	}
	return cmd
}

func (f File) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of " + f.Name + ", for editors", Args: cobra.NoArgs,
		Example: "  " + f.Program + " config schema > " + f.Program + ".schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out cli.Output
			return out.JSON(cmd.OutOrStdout(), f.Schema())
		},
	}
}

func (f File) example() *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Print a configuration file with every key", Args: cobra.NoArgs, Example: "  " + f.Program + " config example > " + f.Name,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), f.Example)
			return err
		},
	}
}
