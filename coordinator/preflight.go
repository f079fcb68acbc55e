package coordinator

import (
	"fmt"
	"strings"
	"time"

	"headroom/coordinator/brakes"
	"headroom/gossip"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/secure"
)

// packagedStateDir is the folder that systemd creates for the packaged service.
const packagedStateDir = "/var/lib/headroom/coordinator"

// Preflight checks what Run needs of this machine, by the functions that Run calls: the
// files that the configuration names, the addresses and the state directory. It changes nothing.
func (c Config) Preflight(now time.Time) cli.Checks {
	self, _ := c.Self()
	checks := cli.Checks{c.checkIdentity(now)}
	if c.Gossip.Bind != "" {
		checks = append(checks, c.checkGossipKeys())
	}
	if c.Brake.PublicKeyFile != "" {
		checks = append(checks, c.checkBrakeKeys())
	}
	if c.BMC.User != "" {
		checks = append(checks, c.checkBMC())
	}
	addrs := map[string]string{"rpc": self.RPC, "raft": self.Raft, "gossip.bind": c.Gossip.Bind, "metrics.listen": c.Metrics.Listen}
	return append(checks,
		config.CheckAddresses(addrs, "rpc", "raft", "gossip.bind", "metrics.listen"),
		config.CheckStateDir("state_dir", c.StateDir, packagedStateDir))
}

// UnratedText is what a domain without a rating means.
const UnratedText = "a budget above the breaker's rating is not refused"

// CheckRatings warns of domains without a rating; it reads only the configuration.
func (c Config) CheckRatings() cli.Check {
	const name = "rating"
	var unrated []string
	for _, d := range c.Site {
		if d.Rating == 0 {
			unrated = append(unrated, d.Name)
		}
	}
	if len(unrated) == 0 {
		return config.Passed(name, cli.Count(len(c.Site), "domain")+" with a rating")
	}
	return cli.Check{
		Name: name, State: cli.CheckWarn, Text: fmt.Sprintf("no rating: %s; %s", strings.Join(unrated, ", "), UnratedText),
		Hint: "add rating: to the domain in site:; in a running cluster: coordinator domain set " + unrated[0] + " --rating POWER",
	}
}

// certificate is this server's.
func (c Config) certificate() config.Certificate {
	self, _ := c.Self()
	return config.Certificate{Files: c.TLS.Files(), Of: secure.Identity{Role: secure.Server, Name: c.ID}, Addrs: []string{self.RPC}}
}

func (c Config) brakeFiles() brakes.Files {
	return brakes.Files{PublicKey: c.Brake.PublicKeyFile, PrivateKey: c.Brake.PrivateKeyFile, StateDir: c.StateDir}
}

func (c Config) checkIdentity(now time.Time) cli.Check {
	if c.TLS.Off() {
		return config.Passed("tls", "off: loopback only")
	}
	return c.certificate().Check(now)
}

func (c Config) checkGossipKeys() cli.Check {
	const name = "gossip"
	keys, err := gossip.LoadKeys(c.Gossip.KeyFile)
	if err != nil {
		return config.Failed(name, err)
	}
	return config.Secrets(config.Passed(name, cli.Count(len(keys), "key")+" in "+c.Gossip.KeyFile), c.Gossip.KeyFile)
}

func (c Config) checkBrakeKeys() cli.Check {
	const name = "brake"
	_, private, err := c.brakeFiles().Load()
	switch {
	case err != nil:
		return config.Failed(name, err)
	case private == nil:
		return config.Passed(name, "accepts a brake; cannot set one without brake.private_key_file")
	}
	return config.Passed(name, "the keys are a pair")
}

func (c Config) checkBMC() cli.Check {
	const name = "bmc"
	if _, err := c.BMC.poweredOff(); err != nil {
		return config.Failed(name, err)
	}
	return config.Secrets(config.Passed(name, c.BMC.PasswordFile), c.BMC.PasswordFile)
}
