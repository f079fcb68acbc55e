package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// othersRead are the permissions of users who are neither owner nor group.
const othersRead = 0o004

// Passed returns a check that did not fail.
func Passed(name, text string) cli.Check {
	return cli.Check{Name: name, State: cli.CheckOK, Text: text}
}

// Failed returns a check that failed with err.
func Failed(name string, err error) cli.Check {
	c := cli.Check{Name: name, State: cli.CheckFail, Text: err.Error()}
	if e, ok := errors.AsType[*cli.Error](err); ok {
		c.Text, c.Hint = e.Message, e.Hint
	}
	if errors.Is(err, fs.ErrPermission) {
		c.Hint = "give the file to root and the service's group: chown root:GROUP FILE; chmod 0640 FILE"
	}
	return c
}

// Secrets adds a warning to a check that passed when every user of this machine can
// read one of the files.
func Secrets(c cli.Check, paths ...string) cli.Check {
	for _, path := range paths {
		info, err := os.Stat(path)
		if c.State != cli.CheckOK || err != nil || info.Mode().Perm()&othersRead == 0 {
			continue
		}
		c.State, c.Hint = cli.CheckWarn, "chmod 0640 "+path
		c.Text = fmt.Sprintf("every user of this machine can read %s (mode %04o)", path, info.Mode().Perm())
	}
	return c
}

// CheckFile checks that a file can be read.
func CheckFile(name, path string) cli.Check {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return Failed(name, err)
	}
	_ = f.Close()
	return Passed(name, path)
}

// CheckStateDir checks that the state directory, the key name, can be written. packaged is the one that
// systemd makes at the service's first start.
func CheckStateDir(name, path, packaged string) cli.Check {
	switch err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS); {
	case err == nil:
		return Passed(name, path)
	case !errors.Is(err, fs.ErrNotExist):
		c := Failed(name, fmt.Errorf("%s cannot be written: %w", path, err))
		c.Hint = "give it to the user of the service: chown USER " + path
		return c
	case filepath.Clean(path) == packaged:
		return Passed(name, path+" is made by the service")
	}
	parent := filepath.Dir(path)
	for {
		err := unix.Faccessat(unix.AT_FDCWD, parent, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		if err == nil {
			return Passed(name, path+" is made at the start")
		}
		if !errors.Is(err, fs.ErrNotExist) || parent == "/" || parent == "." {
			c := Failed(name, fmt.Errorf("%s does not exist, and %s cannot be written: %w", path, parent, err))
			c.Hint = "make it for the user of the service: install -d -o USER -m 0700 " + path
			return c
		}
		parent = filepath.Dir(parent)
	}
}

// CheckAddresses checks that this machine has each address, host:port, that is listened
// on. The ports are not opened: the service may be running. Empty addresses are skipped.
func CheckAddresses(addrs map[string]string, order ...string) cli.Check {
	const name = "addresses"
	text := ""
	for _, key := range order {
		addr := addrs[key]
		if addr == "" {
			continue
		}
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return Failed(name, Bad("write host:port", "%s: %q is not host:port", key, addr))
		}
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return Failed(name, Bad("ip address lists the addresses of this machine", "%s: this machine does not have the address %s", key, host))
		}
		if err != nil {
			return Failed(name, Bad("write host:port", "%s %s: %v", key, addr, err))
		}
		_ = l.Close()
		if text != "" {
			text += ", "
		}
		text += key + " " + addr
	}
	return Passed(name, text)
}
