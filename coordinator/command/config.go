package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/internal/config"
)

func configCommand(out *cli.Output) *cobra.Command {
	group := &cobra.Command{
		Use: "config", Short: "Check or print the configuration file",
		Example: "  coordinator config example > coordinator.yaml\n  coordinator config check --config coordinator.yaml",
	}
	group.AddCommand(configCheck(out), configShow(out), configSchema(), configExample())
	return group
}

// configJSON is `coordinator config check -o json`.
type configJSON struct {
	Kind    string `json:"kind"`
	API     string `json:"api"`
	File    string `json:"file"`
	ID      string `json:"id"`
	Servers int    `json:"servers"`
	OK      bool   `json:"ok"`
}

func configCheck(out *cli.Output) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "check", Short: "Check a configuration file as start-up does", Args: cobra.NoArgs, Example: "  coordinator config check --config coordinator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := coordinator.LoadConfig(path)
			if err != nil {
				return err
			}
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), configJSON{Kind: "ConfigCheck", API: "v1", File: path, ID: c.ID, Servers: len(c.Servers), OK: true})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok, server %s of %d\n", path, c.ID, len(c.Servers))
			return err
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func configShow(out *cli.Output) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "show", Short: "Print the configuration in force, with the defaults of keys that the file does not have", Args: cobra.NoArgs,
		Example: "  coordinator config show --config coordinator.yaml\n  coordinator config show -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := coordinator.LoadConfig(path)
			if err != nil {
				return err
			}
			return config.Show(cmd.OutOrStdout(), c, out.IsJSON())
		},
	}
	configFlag(cmd, &path)
	return cmd
}

func configSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of coordinator.yaml, for editors", Args: cobra.NoArgs, Example: "  coordinator config schema > coordinator.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out cli.Output
			return out.JSON(cmd.OutOrStdout(), configFile().Schema())
		},
	}
}

func configExample() *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Print a configuration file with every key", Args: cobra.NoArgs, Example: "  coordinator config example > coordinator.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), coordinator.ExampleConfig)
			return err
		},
	}
}

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfig, "configuration file")
}
