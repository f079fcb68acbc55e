package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/agent/machine"
	"headroom/internal/cli"
)

func newConfigCommand() *cobra.Command {
	var p place
	return configFile().Group(newConfigCheckCommand(), p.flags, func() (any, error) { return p.load() }, nil)
}

func newConfigCheckCommand() *cobra.Command {
	var p place
	var pr printer
	cmd := &cobra.Command{
		Use: "check", Short: "Check the configuration and its files as powerd run does", Example: "  powerd config check --config powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			v := configJSON{Kind: "ConfigCheck", API: "v1", File: p.config, Node: cfg.Node, Domain: cfg.Domain, OK: true, Warnings: []string{}}
			if lost, err := machine.UnmatchedControls(cfg); err == nil { // a root that is not here says nothing about the file
				for _, pattern := range lost {
					v.Warnings = append(v.Warnings, unmatchedWords+pattern)
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
