package agent

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
	"headroom/lease"
	"headroom/rapl/sysfs"
)

// Where a machine keeps its names, below its root.
const (
	machineIDFile = "etc/machine-id"
	bootIDFile    = "proc/sys/kernel/random/boot_id"
)

// identity is who this process is.
type identity struct {
	machine string
	boot    string
	process uint64 // random: a lease names it
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
	e.Hint = "root: (or --root) must name a directory that holds sys, proc and etc; on a real machine it is /"
	if errors.Is(err, fs.ErrNotExist) {
		e.Message = "no sysfs tree below " + path
	}
	return nil, e
}

func readIdentity(root *os.Root) (identity, error) {
	machine, errMachine := sysfs.ReadText(root, machineIDFile)
	boot, errBoot := sysfs.ReadText(root, bootIDFile)
	if err := errors.Join(errMachine, errBoot); err != nil || machine == "" || boot == "" {
		return identity{}, &cli.Error{
			Code: "no-identity", Exit: cli.ExitUsage, Err: errors.Join(errNoIdentity, err),
			Message: fmt.Sprintf("the machine has no identity: %s and %s must be readable", machineIDFile, bootIDFile),
			Hint:    "systemd-machine-id-setup makes a machine id",
		}
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return identity{}, fmt.Errorf("agent: process id: %w", err)
	}
	return identity{machine: machine, boot: boot, process: binary.LittleEndian.Uint64(b[:])}, nil
}

// BootTime is the time since boot, sleep included, on the clock that leases are
// counted on; 0 when the kernel does not tell.
func BootTime() time.Duration { return instant().Boot }

// instant reads both of the node's clocks, in the order that lease.Instant asks for.
func instant() lease.Instant {
	return lease.Instant{Boot: clock(unix.CLOCK_BOOTTIME), Awake: clock(unix.CLOCK_MONOTONIC)}
}

// clock reads one of the kernel's clocks; on Linux that cannot fail for these two.
func clock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
