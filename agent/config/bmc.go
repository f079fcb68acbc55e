package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/ipmi"
)

// Period is the time between two turns of powerd's inner loop.
const Period = 250 * time.Millisecond

// Beat is the time between heartbeats, and so the slowest that powerd corrects power by itself.
const Beat = time.Second

// SaneAbove is the multiple of rated above which a reading is none.
const SaneAbove = 2

// BMC is where the node's BMC is, with the password. One in-band belongs to this
// machine, so a node below another root has none: its mode is off. The error is a
// *cli.Error about the password's file.
func (c *Config) BMC() (ipmi.Config, error) {
	cfg := ipmi.Config{
		Mode: ipmi.Mode(c.IPMI.Mode), Address: c.IPMI.Address, User: c.IPMI.User, Source: c.IPMI.Source,
		Most: SaneAbove * c.Power.Rated, LoopPeriod: Beat,
	}
	if c.Root != "/" && cfg.Mode == ipmi.ModeAuto {
		cfg.Mode = ipmi.ModeOff
	}
	var err error
	if cfg.Mode == ipmi.ModeLAN {
		cfg.Password, err = readPassword(c.IPMI.PasswordFile)
	}
	return cfg, err
}

// passwordMax bounds the password file: IPMI takes 20 bytes.
const passwordMax = 1 << 10

// readPassword reads the file that holds the BMC's password and nothing else. One
// that others may read is refused.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	refuse := func(problem, hint string, err error) (string, error) {
		return "", &cli.Error{Code: "config", Exit: cli.ExitUsage, Message: "ipmi.password_file: " + problem, Hint: hint, Err: err}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse(path+": no such file", "write the password into it, and chmod 0600", err)
	case err != nil:
		return refuse(err.Error(), "it must be readable by the user that runs powerd", err)
	case info.Mode().Perm()&0o007 != 0:
		return refuse(fmt.Sprintf("%s may be read or written by everybody (mode %04o)", path, info.Mode().Perm()), "chmod 0600 "+path, nil)
	case info.Size() > passwordMax:
		return refuse(fmt.Sprintf("%s holds %d bytes", path, info.Size()), "it must hold the password and nothing else", nil)
	}
	data, err := config.ReadFile(path, passwordMax)
	if err != nil {
		return refuse(err.Error(), "it must be readable by the user that runs powerd", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}
