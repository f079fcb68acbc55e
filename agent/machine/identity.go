package machine

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"headroom/internal/cli"
	"headroom/rapl/sysfs"
)

// Where a machine keeps its names, below its root.
const (
	machineIDFile = "etc/machine-id"
	BootIDFile    = "proc/sys/kernel/random/boot_id"
)

// uninitialized stands in machine-id until the first boot is complete (machine-id(5)).
const uninitialized = "uninitialized"

// Identity is who this process is.
type Identity struct {
	Machine string
	Boot    string
	Process uint64 // random: a lease names it
}

// OpenRoot opens a node's file system, which must have a sysfs in it. The error is
// a *cli.Error.
func OpenRoot(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err == nil {
		if _, err = root.Stat("sys"); err == nil {
			return root, nil
		}
		_ = root.Close()
	}
	e := &cli.Error{Code: "no-sysfs", Exit: cli.ExitUsage, Err: err, Message: fmt.Sprintf("no sysfs tree below %s: %v", path, err)}
	e.Hint = "root: (or --root) must be a directory that contains sys, proc and etc; on a real machine it is /"
	if errors.Is(err, fs.ErrNotExist) {
		e.Message = "no sysfs tree below " + path
	}
	return nil, e
}

// ReadIdentity returns who this process is, on the machine below root. The error is a
// *cli.Error where the machine has no identity.
func ReadIdentity(root *os.Root) (Identity, error) {
	machine, errMachine := sysfs.ReadText(root, machineIDFile)
	boot, errBoot := sysfs.ReadText(root, BootIDFile)
	why := fmt.Sprintf("%s and %s must be readable", machineIDFile, BootIDFile)
	if machine == uninitialized {
		why = fmt.Sprintf("%s is %q, as in an image that has not booted yet; machines made from it could not be told apart", machineIDFile, machine)
	}
	if err := errors.Join(errMachine, errBoot); err != nil || machine == "" || boot == "" || machine == uninitialized {
		return Identity{}, &cli.Error{
			Code: "no-identity", Exit: cli.ExitUsage, Err: errors.Join(errNoIdentity, err), Message: "machine identity unknown: " + why,
			Hint: "systemd-machine-id-setup creates a machine id; in an image leave the file empty, so that each machine makes its own",
		}
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return Identity{}, fmt.Errorf("agent: process id: %w", err)
	}
	return Identity{Machine: machine, Boot: boot, Process: binary.LittleEndian.Uint64(b[:])}, nil
}

// errNoIdentity reports a root without a machine id or boot id.
var errNoIdentity = errors.New("machine identity unknown")
