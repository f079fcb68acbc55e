package scheduler

import (
	"fmt"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/secure"
)

// packagedStateDir is the folder that systemd makes for the packaged service.
const packagedStateDir = "/var/lib/headroom/scheduler"

// expiresSoon is how long before its end a certificate is a warning.
const expiresSoon = 14 * 24 * time.Hour

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

// identity reads the scheduler's certificate.
func (c *Config) identity() (*secure.Keeper, error) {
	k, err := secure.Open(c.TLS.Files())
	if err != nil {
		bad := config.Bad("coordinator tls inspect FILE shows what a certificate says", "%v", err)
		bad.Err = err
		return nil, bad
	}
	if who := k.Identity(); who.Role != secure.Scheduler {
		return nil, config.Bad("coordinator tls cert create scheduler/NAME makes the right one", "tls.cert names %s; the scheduler needs a certificate of role scheduler", who)
	}
	return k, nil
}

func (c *Config) checkIdentity(now time.Time) cli.Check {
	const name, way = "tls", "coordinator tls cert create scheduler/NAME makes a new one"
	if c.TLS.Off() {
		return config.Passed(name, "off: loopback only")
	}
	k, err := c.identity()
	if err != nil {
		return config.Failed(name, err)
	}
	if err := k.Verify(now); err != nil {
		return config.Failed(name, &cli.Error{Message: err.Error(), Hint: way})
	}
	ends := k.Ends().Format(time.RFC3339)
	if k.Ends().Sub(now) < expiresSoon {
		return cli.Check{Name: name, State: cli.CheckWarn, Text: fmt.Sprintf("%s expires at %s", c.TLS.Cert, ends), Hint: way}
	}
	return config.Secrets(config.Passed(name, fmt.Sprintf("%s until %s", k.Identity(), ends)), c.TLS.Key)
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
