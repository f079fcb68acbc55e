package secure

import (
	"errors"
	"fmt"
	"net"
)

// Config is the tls section of a configuration.
type Config struct {
	// Mode is "on", "off", or empty: see Check.
	Mode string `yaml:"mode"`
	// CA, Cert and Key as in Files.
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Files are the three files.
func (c Config) Files() Files { return Files{CA: c.CA, Cert: c.Cert, Key: c.Key} }

// Set reports whether any file is named.
func (c Config) Set() bool { return c.Files() != Files{} }

// Off reports whether the process uses no TLS. Check must have passed.
func (c Config) Off() bool { return c.Mode == "off" || c.Mode == "" && !c.Set() }

// Check refuses unencrypted connections over a network. addrs are the addresses
// that the process listens on or connects to. Without a mode the files decide, and
// without files every address must be loopback; explicit asks for the word "off"
// even then.
func (c Config) Check(explicit bool, addrs ...string) error {
	switch {
	case c.Mode != "" && c.Mode != "on" && c.Mode != "off":
		return fmt.Errorf("tls: mode is %q; it is on or off", c.Mode)
	case c.Mode == "off" && c.Set():
		return errors.New("tls: mode is off, but files are named")
	case c.Mode == "on" || c.Set() || explicit && c.Mode == "":
		if c.CA == "" || c.Cert == "" || c.Key == "" {
			return errors.New("tls needs ca, cert and key; mode: off is for one machine, on loopback only")
		}
		return nil
	}
	for _, addr := range addrs {
		if !Loopback(addr) {
			return fmt.Errorf("tls is off and %s is not a loopback address: anyone on that network could act as any node or operator", addr)
		}
	}
	return nil
}

// Loopback reports whether only this machine reaches the address, host:port.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
