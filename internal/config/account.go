package config

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Account is a user of this machine and its groups, by number. The zero Account is
// the user who runs the process.
type Account struct {
	Name   string
	uid    int
	gid    int
	groups []uint32
}

// ServiceAccount returns the account that checks of a service's files use: the named
// user, or the service's own user when root asks and the user exists, or the caller.
func ServiceAccount(named, service string) (Account, error) {
	if named != "" {
		return lookupAccount(named)
	}
	if os.Geteuid() == 0 {
		if a, err := lookupAccount(service); err == nil {
			return a, nil
		}
	}
	return Account{}, nil
}

func lookupAccount(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, Bad("getent passwd lists the users of this machine", "--user %s: no such user", name)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return Account{}, fmt.Errorf("config: groups of %s: %w", name, err)
	}
	a := Account{Name: name}
	if a.uid, err = strconv.Atoi(u.Uid); err != nil {
		return Account{}, fmt.Errorf("config: user %s: %w", name, err)
	}
	if a.gid, err = strconv.Atoi(u.Gid); err != nil {
		return Account{}, fmt.Errorf("config: user %s: %w", name, err)
	}
	for _, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return Account{}, fmt.Errorf("config: groups of %s: %w", name, err)
		}
		a.groups = append(a.groups, uint32(n))
	}
	return a, nil
}

// Do calls f with the account's rights to files. Only root can take another account's
// rights. f must not start goroutines: the rights are those of one thread.
func (a Account) Do(f func()) error {
	if a.Name == "" || a.uid == os.Geteuid() {
		f()
		return nil
	}
	if os.Geteuid() != 0 {
		return Bad("run the command as root, or as "+a.Name, "--user %s: only root can check with the rights of another user", a.Name)
	}
	done := make(chan error)
	go func() {
		// The thread is not unlocked: it ends with this goroutine, and its rights with it.
		runtime.LockOSThread()
		err := a.take()
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// take changes the rights of this thread. The kernel drops the capabilities to override
// permissions with the file system user (capabilities(7)).
func (a Account) take() error {
	groups := append([]uint32{uint32(a.gid)}, a.groups...)
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0) //nolint:gosec // the wrappers change all threads, and only this one may change
	if errno != 0 {
		return fmt.Errorf("config: take the groups of %s: %w", a.Name, errno)
	}
	if _, err := unix.SetfsgidRetGid(a.gid); err != nil {
		return fmt.Errorf("config: take the group of %s: %w", a.Name, err)
	}
	if _, err := unix.SetfsuidRetUid(a.uid); err != nil {
		return fmt.Errorf("config: take the rights of %s: %w", a.Name, err)
	}
	if now, _ := unix.SetfsuidRetUid(-1); now != a.uid {
		return fmt.Errorf("config: take the rights of %s: %w", a.Name, unix.EPERM)
	}
	return nil
}
