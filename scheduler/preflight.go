package scheduler

import (
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/secure"
)

// packagedStateDir is the folder that systemd makes for the packaged service.
const packagedStateDir = "/var/lib/headroom/scheduler"

// Preflight checks what the start needs of this machine, by the functions that the start
// calls: the files that the configuration names, the addresses and the scheduler's folder.
// It changes nothing.
func (c *Config) Preflight(now time.Time) cli.Checks {
	checks := cli.Checks{c.checkIdentity(now)}
	if c.Yarn.On() {
		checks = append(checks, c.checkYARN())
	}
	addrs := map[string]string{"listen": c.Listen, "metrics.listen": c.Metrics.Listen}
	if c.Yarn.On() {
		addrs["yarn.hooks"] = c.Yarn.Hooks
	}
	if c.Spark.On() {
		addrs["spark.hooks"] = c.Spark.Hooks
	}
	return append(checks,
		config.CheckAddresses(addrs, "listen", "yarn.hooks", "spark.hooks", "metrics.listen"),
		config.CheckStateDir("dir", c.Dir, packagedStateDir))
}

// certificate is the scheduler's.
func (c *Config) certificate() config.Certificate {
	return config.Certificate{Files: c.TLS.Files(), Of: secure.Identity{Role: secure.Scheduler}, Addrs: []string{c.Listen}}
}

func (c *Config) checkIdentity(now time.Time) cli.Check {
	if c.TLS.Off() {
		return config.Passed("tls", "off: loopback only")
	}
	return c.certificate().Check(now)
}

func (c *Config) checkYARN() cli.Check {
	const name = "yarn"
	if err := c.Yarn.CheckFiles(); err != nil {
		return config.Failed(name, err)
	}
	if _, err := hookGuard(c.Yarn); err != nil {
		return config.Failed(name, err)
	}
	return config.Passed(name, "every file can be read")
}
