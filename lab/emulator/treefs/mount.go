package treefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"headroom/lab/emulator/kernel"
)

// Mount is a tree behind a FUSE mount.
type Mount struct {
	dir    string
	server *fuse.Server
}

// NewMount mounts the tree over the folder dir. Calls of the tree are made under
// lock, from goroutines of the mount's own. Bounds of frequency are carried out late,
// as kernels do (kernel.Tree.DeferBounds). It fails with ErrNoFUSE where this host or
// user cannot mount.
func NewMount(dir string, tree *kernel.Tree, lock sync.Locker) (*Mount, error) {
	tree.DeferBounds()
	// Folders and links never change; modes may.
	names, modes := time.Hour, time.Duration(0)
	server, err := fusefs.Mount(dir, &rootNode{tree: tree, lock: lock}, &fusefs.Options{
		EntryTimeout: &names, AttrTimeout: &modes,
		MountOptions: fuse.MountOptions{
			FsName: "headroom-node", Name: "headroom", DirectMountStrict: true, AllowOther: true,
			Options: []string{"default_permissions"}, Logger: log.New(io.Discard, "", 0),
			DisableReadDirPlus: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoFUSE, dir, err)
	}
	if err := keepToOurselves(); err != nil {
		return nil, errors.Join(err, (&Mount{dir: dir, server: server}).Close())
	}
	return &Mount{dir: dir, server: server}, nil
}

// keepToOurselves has no program that this process starts inherit the mount's
// descriptors: the mount must end with this process, not with its last child.
func keepToOurselves() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("treefs: own descriptors: %w", err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || to != "/dev/fuse" {
			continue
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Close takes the mount down. Files of it that others still have open fail from
// now on.
func (m *Mount) Close() error {
	// At once and with force: who has a file open loses it, as with a machine that
	// is switched off.
	if err := unix.Unmount(m.dir, unix.MNT_FORCE|unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("treefs: unmount %s: %w", m.dir, err)
	}
	m.server.Wait()
	return nil
}

// dirNode is a folder: nothing in it comes or goes.
type dirNode struct{ fusefs.Inode }

var (
	_ fusefs.NodeUnlinker = (*dirNode)(nil)
	_ fusefs.NodeRmdirer  = (*dirNode)(nil)
)

// Unlink refuses, as sysfs does.
func (d *dirNode) Unlink(context.Context, string) syscall.Errno { return syscall.EPERM }

// Rmdir refuses, as sysfs does.
func (d *dirNode) Rmdir(context.Context, string) syscall.Errno { return syscall.EPERM }

// rootNode is the mount's top folder; it makes the whole tree when it is added.
type rootNode struct {
	dirNode
	tree *kernel.Tree
	lock sync.Locker
}

var _ fusefs.NodeOnAdder = (*rootNode)(nil)

// OnAdd makes every folder, file and link: none comes or goes later.
func (r *rootNode) OnAdd(ctx context.Context) {
	dirs := map[string]*fusefs.Inode{".": &r.Inode}
	dirOf := func(name string) *fusefs.Inode {
		for _, dir := range folders(name) {
			if dirs[dir] == nil {
				up := dirs[path.Dir(dir)]
				dirs[dir] = up.NewPersistentInode(ctx, &dirNode{}, fusefs.StableAttr{Mode: syscall.S_IFDIR})
				up.AddChild(path.Base(dir), dirs[dir], true)
			}
		}
		return dirs[path.Dir(name)]
	}
	for _, a := range r.tree.Attrs() {
		node := &fileNode{attr: a, tree: r.tree, lock: r.lock}
		node.mode.Store(uint32(a.Mode.Perm()))
		up := dirOf(a.Path)
		up.AddChild(path.Base(a.Path), up.NewPersistentInode(ctx, node, fusefs.StableAttr{Mode: syscall.S_IFREG}), true)
	}
	for from, to := range r.tree.Links() {
		up := dirOf(from)
		link := &fusefs.MemSymlink{Data: []byte(to)}
		up.AddChild(path.Base(from), up.NewPersistentInode(ctx, link, fusefs.StableAttr{Mode: syscall.S_IFLNK}), true)
	}
	for _, dir := range r.tree.Dirs() {
		dirOf(path.Join(dir, "."+"x"))
	}
}

// fileNode is one file of the mount.
type fileNode struct {
	fusefs.Inode
	attr *kernel.Attr
	tree *kernel.Tree
	lock sync.Locker
	mode atomic.Uint32 // permission bits
}

var (
	_ fusefs.NodeOpener    = (*fileNode)(nil)
	_ fusefs.NodeReader    = (*fileNode)(nil)
	_ fusefs.NodeWriter    = (*fileNode)(nil)
	_ fusefs.NodeGetattrer = (*fileNode)(nil)
	_ fusefs.NodeSetattrer = (*fileNode)(nil)
)

// Getattr is what stat sees: a file of one page, as in sysfs.
func (f *fileNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = f.mode.Load(), pageSize
	return 0
}

// Setattr lets modes change, and truncation pass as the kernel lets it pass.
func (f *fileNode) Setattr(ctx context.Context, h fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if mode, ok := in.GetMode(); ok {
		f.mode.Store(mode & uint32(fs.ModePerm))
	}
	return f.Getattr(ctx, h, out)
}

// Open refuses writers of what is read-only, root too, as sysfs does.
func (f *fileNode) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	f.lock.Lock()
	defer f.lock.Unlock()
	writing := flags&syscall.O_ACCMODE != syscall.O_RDONLY
	return nil, fuse.FOPEN_DIRECT_IO, errno(f.tree.Open(f.attr, writing))
}

// Read calls the file's show function at every read.
func (f *fileNode) Read(_ context.Context, _ fusefs.FileHandle, _ []byte, offset int64) (fuse.ReadResult, syscall.Errno) {
	f.lock.Lock()
	defer f.lock.Unlock()
	text, err := f.tree.Read(f.attr)
	if err != nil {
		return nil, errno(err)
	}
	text += "\n"
	return fuse.ReadResultData([]byte(text[min(offset, int64(len(text))):])), 0
}

// Write calls the file's store function with what one write brought.
func (f *fileNode) Write(_ context.Context, _ fusefs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return uint32(len(data)), errno(f.tree.Write(f.attr, string(data)))
}

// errno is the number in err, EIO where there is none.
func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return syscall.EIO
}
