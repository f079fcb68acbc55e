package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"headroom/coordinator"
	"headroom/internal/cli"
)

func configCommand(out *cli.Output) *cobra.Command {
	var path string
	return configFile().Group(configCheck(out), func(cmd *cobra.Command) { configFlag(cmd, &path) }, func() (any, error) { return coordinator.LoadConfig(path) }, out)
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

func configFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "config", defaultConfig, "configuration file")
}
