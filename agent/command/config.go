package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/gossip"
	"headroom/gossip/brake"
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
		Use: "check", Short: "Check the configuration and its files as powerd run does",
		Long: "Check the configuration as powerd run does: syntax, values, and every file that it names (certificate,\n" +
			"keys, password). Patterns of controls: that match nothing on this machine are warnings. The service has\n" +
			"CAP_DAC_OVERRIDE and may read files of other users, so run this command as root.",
		Example: "  powerd config check\n  powerd config check --config powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			if err := openFiles(cfg); err != nil {
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

// openFiles opens every file that the configuration names, as powerd run does.
func openFiles(cfg config.Config) error {
	peers, err := cfg.Peers()
	if err != nil {
		return err
	}
	peers.Close()
	if cfg.Gossip.Bind != "" {
		if _, err := gossip.LoadKeys(cfg.Gossip.KeyFile); err != nil {
			return err
		}
	}
	if cfg.Brake.PublicKeyFile != "" {
		if _, err := brake.LoadKeys(cfg.Brake.PublicKeyFile); err != nil {
			return err
		}
	}
	_, err = cfg.BMC()
	return err
}

// configJSON is `powerd config check -o json`.
type configJSON struct {
	Kind   string `json:"kind"`
	API    string `json:"api"`
	File   string `json:"file"`
	Node   string `json:"node"`
	Domain string `json:"domain"`
	OK     bool   `json:"ok"`
	// Warnings name patterns that match no control of the machine.
	Warnings []string `json:"warnings"`
}
