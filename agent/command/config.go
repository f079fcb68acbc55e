package command

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	inner "headroom/internal/config"
	"headroom/ipmi"
)

func newConfigCommand() *cobra.Command {
	var p place
	return configFile().Group(newConfigCheckCommand(), p.flags, func() (any, error) { return p.load() }, nil)
}

// configJSON is `powerd config check -o json`.
type configJSON struct {
	Kind   string     `json:"kind"`
	API    string     `json:"api"`
	File   string     `json:"file"`
	Node   string     `json:"node"`
	Domain string     `json:"domain"`
	OK     bool       `json:"ok"`
	Checks cli.Checks `json:"checks"`
	// Warnings are the texts of the checks that warn.
	Warnings []string `json:"warnings"`
}

const configCheckLong = `Check the configuration as powerd run does: its syntax and values, and then this machine: every file that it names
(certificate, keys, password) can be read, the addresses are this machine's, and each pattern of controls: matches a
control. The service has CAP_DAC_OVERRIDE and may read files of other users, so run this command as root. Use
--syntax-only on a machine that is not the node.`

func newConfigCheckCommand() *cobra.Command {
	var p shown
	var syntaxOnly bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check a configuration and the files that it names", Long: configCheckLong, Args: cobra.NoArgs,
		Example: "  powerd config check\n  powerd config check --config powerd.yaml --syntax-only",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			checks := cli.Checks{inner.Passed("syntax", fmt.Sprintf("%s: node %s in %s, fail-safe cap %s of at most %s",
				p.config, cfg.Node, cfg.Domain, cli.Watts(cfg.Power.FailSafe), cli.Watts(cfg.Power.Max)))}
			if !syntaxOnly {
				checks = append(checks, preflight(cfg)...)
			}
			failed, _ := checks.Count()
			v := configJSON{Kind: "ConfigCheck", API: "v1", File: p.config, Node: cfg.Node, Domain: cfg.Domain, OK: failed == 0, Checks: checks, Warnings: []string{}}
			for _, c := range checks {
				if c.State == cli.CheckWarn {
					v.Warnings = append(v.Warnings, c.Text)
				}
			}
			return cmp.Or(p.print(cmd, v, func(w io.Writer) error { return checks.Print(w, &p.out) }), checks.ConfigVerdict())
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&syntaxOnly, "syntax-only", false, "check only the file, not this machine")
	return cmd
}

// preflight checks the files and addresses that the configuration names, as powerd run opens them.
func preflight(cfg config.Config) cli.Checks {
	checks := cli.Checks{checkCertificate(cfg)}
	if cfg.Gossip.Bind != "" {
		_, err := gossip.LoadKeys(cfg.Gossip.KeyFile)
		checks = append(checks, inner.Secrets(loaded("gossip", cfg.Gossip.KeyFile, err), cfg.Gossip.KeyFile))
	}
	if cfg.Brake.PublicKeyFile != "" {
		_, err := brake.LoadKeys(cfg.Brake.PublicKeyFile)
		checks = append(checks, loaded("brake", cfg.Brake.PublicKeyFile, err))
	}
	if bmc, err := cfg.BMC(); err != nil || bmc.Mode == ipmi.ModeLAN {
		checks = append(checks, loaded("bmc", cfg.IPMI.PasswordFile, err))
	}
	addrs := map[string]string{"gossip.bind": cfg.Gossip.Bind, "metrics.listen": cfg.Metrics.Listen}
	if cfg.Gossip.Bind+cfg.Metrics.Listen != "" {
		checks = append(checks, inner.CheckAddresses(addrs, "gossip.bind", "metrics.listen"))
	}
	if lost, err := machine.UnmatchedControls(cfg); err == nil { // a root that is not here says nothing about the file
		for _, pattern := range lost {
			checks = append(checks, cli.Check{Name: "controls", State: cli.CheckWarn, Text: unmatchedWords + pattern, Hint: unmatchedHint})
		}
	}
	return checks
}

func checkCertificate(cfg config.Config) cli.Check {
	if cfg.TLS.Off() {
		return inner.Passed("tls", "off: loopback only")
	}
	peers, err := cfg.Peers()
	if err != nil {
		return inner.Failed("tls", err) // the denials as well
	}
	peers.Close()
	return cfg.Certificate().Check(time.Now())
}

// loaded is the check of a file that was read with err.
func loaded(name, file string, err error) cli.Check {
	if err != nil {
		return inner.Failed(name, err)
	}
	return inner.Passed(name, file)
}
