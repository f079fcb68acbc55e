package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// swapDirs exchanges two folders in one step.
func swapDirs(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(b))
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot replace %s: it is a mount point", b), Err: err,
			Hint: "make state_dir a folder inside the mount, and move its content there",
		}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return &cli.Error{
			Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot replace %s in one step: its file system cannot exchange two folders", b), Err: err,
			Hint: "put state_dir on a local ext4, xfs, btrfs or tmpfs",
		}
	}
	return cannotWrite(b, err)
}

func cannotWrite(path string, err error) error {
	return &cli.Error{
		Exit: cli.ExitFailed, Message: fmt.Sprintf("cannot write %s: %v", path, err), Err: err,
		Hint: "run as the owner of state_dir, or as root; its parent folder must be writable and have free space",
	}
}

// copyTree copies a stopped server's folder.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("coordinator: copy %s: %w", from, err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			err = os.Mkdir(target, 0o700)
		case d.Type().IsRegular():
			err = copyFile(path, target)
		}
		if err != nil {
			return cannotWrite(target, err)
		}
		return nil
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(filepath.Clean(to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = out.ReadFrom(in)
	return err
}

// settle gives a new folder the owner of the one that it replaces, and waits
// until all of it is on disk.
func settle(staging, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	root, err := os.OpenRoot(staging)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ok && os.Geteuid() == 0 {
			if err := root.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
				return err
			}
		}
		f, err := root.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// syncDir waits until a folder's entries are on disk.
func syncDir(path string) error {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
