package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/secure"
)

// expiresSoon is how long before its end a certificate is a warning of `config check`.
const expiresSoon = 30 * 24 * time.Hour

// Certificate is the certificate that a program shows, and whose it must be. `config check` and
// the start of the program ask the same of it.
type Certificate struct {
	secure.Files

	// Of is whose it must be; without a name anybody's of the role.
	Of secure.Identity
	// Addrs are host:port at which clients reach the program; those without a host say nothing.
	Addrs []string
}

// Read reads the certificate and refuses one that no peer would accept: another's, of another
// authority, or outside its dates. The error is a *cli.Error.
func (c Certificate) Read(now time.Time) (*secure.Keeper, error) {
	k, err := secure.Open(c.Files)
	if err != nil {
		return nil, c.refusal(err)
	}
	if who := k.Identity(); who.Role != c.Of.Role || c.Of.Name != "" && who.Name != c.Of.Name {
		return nil, c.refusal(fmt.Errorf("tls.cert: %s: names %s, needed is %s", c.Cert, who, c.name()))
	}
	if err := k.Verify(now); err != nil {
		return nil, c.refusal(err)
	}
	return k, nil
}

// Open is Read for a start: it refuses a key that others can read as well.
func (c Certificate) Open(now time.Time) (*secure.Keeper, error) {
	k, err := c.Read(now)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(c.Key); err == nil && info.Mode().Perm()&othersRead != 0 {
		bad := Bad("chmod 0640 "+c.Key+"; if others may have read it, make a new one: "+c.create(),
			"tls.key: every user of this machine can read %s (mode %04o)", c.Key, info.Mode().Perm())
		bad.Code = "tls"
		return nil, bad
	}
	return k, nil
}

// Start is Open for a program that runs now, with a warning in its log.
func (c Certificate) Start(logger *slog.Logger) (*secure.Keeper, error) {
	now := time.Now()
	k, err := c.Open(now)
	if err != nil {
		return nil, err
	}
	if text, hint := c.Warn(k, now); text != "" {
		logger.Warn("certificate should be renewed", slog.String("text", text), slog.String("hint", hint))
	}
	return k, nil
}

// Warn says what is wrong with a certificate that is accepted; both are empty if nothing is.
func (c Certificate) Warn(k *secure.Keeper, now time.Time) (text, hint string) {
	if ends := k.Ends(); ends.Sub(now) < expiresSoon {
		return fmt.Sprintf("%s expires at %s", c.Cert, ends.Format(time.RFC3339)), c.create() + " makes a new one"
	}
	if missing := k.Unnamed(Hosts(c.Addrs...)); len(missing) > 0 {
		return fmt.Sprintf("%s does not name %s: curl, Python and browsers refuse it there; Headroom's own programs accept it", c.Cert, strings.Join(missing, ", ")),
			"renew it: " + c.create()
	}
	return "", ""
}

// Check is Open and Warn as a line of `config check`.
func (c Certificate) Check(now time.Time) cli.Check {
	const name = "tls"
	k, err := c.Open(now)
	if err != nil {
		return Failed(name, err)
	}
	if text, hint := c.Warn(k, now); text != "" {
		return cli.Check{Name: name, State: cli.CheckWarn, Text: text, Hint: hint}
	}
	return Passed(name, fmt.Sprintf("%s until %s", k.Identity(), k.Ends().Format(time.RFC3339)))
}

func (c Certificate) name() string {
	if c.Of.Name == "" {
		return c.Of.Role + "/NAME"
	}
	return c.Of.String()
}

// create is the command that makes the certificate anew.
func (c Certificate) create() string {
	command := "coordinator tls cert create " + c.name()
	if hosts := Hosts(c.Addrs...); len(hosts) > 0 {
		command += " --host " + strings.Join(hosts, ",")
	}
	return command
}

func (c Certificate) refusal(err error) *cli.Error {
	e := &cli.Error{
		Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(),
		Hint: c.create() + " makes a new one; coordinator tls inspect FILE shows what a certificate says",
	}
	if errors.Is(err, secure.ErrEarly) {
		e.Hint = "set the clock of this machine (timedatectl), or correct that of the machine that made the certificate"
	}
	return e
}

// Hosts returns the hosts of addresses, once each, without those that stand for any host.
func Hosts(addrs ...string) []string {
	var out []string
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if ip := net.ParseIP(host); err != nil || host == "" || ip.IsUnspecified() || slices.Contains(out, host) {
			continue
		}
		out = append(out, host)
	}
	return out
}
