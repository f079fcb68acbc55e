package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"headroom/gossip"
	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/units"
)

// devPorts is the number of consecutive ports of a development server: RPC, the
// log and gossip.
const devPorts = 3

// DevConfig returns the configuration of a cluster of one server for development: state in dir, which
// must exist, no TLS, RPC at rpc (a loopback address, host:port), the log and
// gossip on the next two ports, its own keys for gossip and brake in dir, and a site and
// a rack with the budget. Errors are *cli.Error, exit 2.
func DevConfig(dir, rpc string, power units.Power) (Config, error) {
	host, text, err := net.SplitHostPort(rpc)
	port, badPort := strconv.ParseUint(text, 10, 16)
	if err != nil || badPort != nil || port == 0 || port+devPorts-1 > 1<<16-1 {
		return Config{}, cli.Usage("%q is no host:port with two more ports behind it", rpc)
	}
	beside := func(i uint64) string { return net.JoinHostPort(host, strconv.FormatUint(port+i, 10)) }
	c := Defaults()
	c.ID, c.StateDir, c.TLS = "dev", dir, secure.Config{Mode: "off"}
	c.Servers = []ServerConfig{{ID: c.ID, RPC: rpc, Raft: beside(1)}}
	c.Gossip = GossipConfig{Bind: beside(2), KeyFile: filepath.Join(dir, "gossip.key")}
	c.Brake = BrakeConfig{PublicKeyFile: filepath.Join(dir, "brake.pub"), PrivateKeyFile: filepath.Join(dir, "brake.key")}
	c.Site = []DomainConfig{{Name: "site/dev", Budget: power}, {Name: "rack/r1", Parent: "site/dev", Budget: power}}
	if err := c.check(); err != nil {
		e := cli.Usage("development server: %w", err)
		e.Hint = "--dev is for one machine: a loopback address such as 127.0.0.1:7400, and a budget above 0 W"
		return Config{}, e
	}
	return c, errors.Join(devKey(c.Gossip.KeyFile), devBrakeKeys(c.Brake))
}

// devBrakeKeys creates the brake's key pair if there is none.
func devBrakeKeys(c BrakeConfig) error {
	if _, err := os.Stat(c.PrivateKeyFile); !errors.Is(err, fs.ErrNotExist) {
		return nil // errors in it are reported when it is read
	}
	return brake.WriteKey(c.PrivateKeyFile, c.PublicKeyFile)
}

// devKey creates the gossip key if there is none.
func devKey(path string) error {
	key, err := gossip.NewKey()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return &cli.Error{Code: "state-dir", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("gossip key: %v", err), Hint: "--state-dir names a folder that you may write to"}
	}
	_, err = f.WriteString(key + "\n")
	return errors.Join(err, f.Close())
}
