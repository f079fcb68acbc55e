package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/internal/cli"
	"headroom/internal/config"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check or print the configuration",
		Example: "  powerd config example > powerd.yaml\n  powerd config check --config powerd.yaml",
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigShowCommand(), newConfigSchemaCommand(), newConfigExampleCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	var p place
	var pr printer
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration as run would", Example: "  powerd config check --config powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			v := configJSON{Kind: "ConfigCheck", API: "v1", File: p.config, Node: cfg.Node, Domain: cfg.Domain, OK: true, Warnings: []string{}}
			if lost, err := agent.UnmatchedControls(cfg); err == nil { // a root that is not here says nothing about the file
				for _, pattern := range lost {
					v.Warnings = append(v.Warnings, pattern+unmatchedWords)
				}
			}
			return pr.print(cmd, v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "ok  %s: node %s in %s, fail-safe cap %s of at most %s\n",
					p.config, cfg.Node, cfg.Domain, cli.Watts(cfg.Power.FailSafe), cli.Watts(cfg.Power.Max))
				for _, warning := range v.Warnings {
					_, more := fmt.Fprintf(w, "warn  %s\n      hint: %s\n", warning, unmatchedHint)
					err = errors.Join(err, more)
				}
				return err
			})
		},
	}
	p.flags(cmd)
	pr.out.Flags(cmd)
	return cmd
}

// configJSON is `powerd config check -o json`.
type configJSON struct {
	Kind   string `json:"kind"`
	API    string `json:"api"`
	File   string `json:"file"`
	Node   string `json:"node"`
	Domain string `json:"domain"`
	OK     bool   `json:"ok"`
	// Warnings are about what the file says and the machine does not have.
	Warnings []string `json:"warnings"`
}

func newConfigShowCommand() *cobra.Command {
	var p place
	var out cli.Output
	cmd := &cobra.Command{
		Use: "show", Short: "Print the configuration in force, with the defaults of keys that the file does not have",
		Example: "  powerd config show --config powerd.yaml\n  powerd config show -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			return config.Show(cmd.OutOrStdout(), cfg, out.IsJSON())
		},
	}
	p.flags(cmd)
	out.Flags(cmd)
	return cmd
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of powerd.yaml, for editors",
		Example: "  powerd config schema > powerd.schema.json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out cli.Output
			return out.JSON(cmd.OutOrStdout(), configFile().Schema())
		},
	}
}

func newConfigExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "example", Short: "Print a configuration with every key", Example: "  powerd config example > powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), agent.ExampleConfig)
			return err
		},
	}
}
