package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// classDir is where the kernel links every powercap zone (powercap.rst).
const classDir = "sys/class/powercap"

// zonesMax bounds the walk: 8 sockets of 4 dies with 4 zones each, twice
// (MSR and MMIO), is the largest machine known.
const zonesMax = 256

// linksMax bounds a chain of links to one zone; the kernel makes one.
const linksMax = 8

// finder walks a powercap class directory. A zone is found by its link in the
// class, and again inside its parent where the class does not link it.
type finder struct {
	root  *os.Root
	found []Dir
	errs  []error
}

// find lists the RAPL zones below root. Without any it returns nil and why.
func find(root *os.Root) ([]Dir, error) {
	entries, err := fs.ReadDir(root.FS(), classDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rapl: %s: %w", classDir, ErrNoTree)
	}
	if err != nil {
		return nil, fmt.Errorf("rapl: %w", err)
	}
	f := &finder{root: root}
	for _, e := range entries {
		if control, _, _ := strings.Cut(e.Name(), ":"); control == ControlMSR || control == ControlMMIO {
			f.visit(path.Join(classDir, e.Name()), control)
		}
	}
	for i := 0; i < len(f.found); i++ { // grows meanwhile: children of children
		f.children(f.found[i].Path, f.found[i].Control)
	}
	if len(f.found) == 0 {
		return nil, errors.Join(append(f.errs, fmt.Errorf("rapl: %s: %w", classDir, ErrNoZone))...)
	}
	return f.found, errors.Join(f.errs...)
}

// visit notes the zone at link, or looks into it when it is the control type
// itself, which is a directory of zones and no zone.
func (f *finder) visit(link, control string) {
	dir := link
	for range linksMax {
		next, ok := follow(f.root, dir)
		if !ok {
			break
		}
		dir = next
	}
	info, err := f.root.Stat(dir)
	if err != nil {
		f.errs = append(f.errs, fmt.Errorf("rapl: %s: %w", path.Base(link), err))
		return
	}
	switch {
	case !info.IsDir() || len(f.found) >= zonesMax || f.known(info, dir):
	case path.Base(link) == control:
		f.children(dir, control)
	default:
		f.found = append(f.found, Dir{Path: dir, Control: control, info: info})
	}
}

// children visits the zones inside dir.
func (f *finder) children(dir, control string) {
	entries, err := fs.ReadDir(f.root.FS(), dir)
	if err != nil {
		return // a zone that is no directory to list has no zones inside
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), control+":") {
			f.visit(path.Join(dir, e.Name()), control)
		}
	}
}

// known reports whether the zone was found before: under another link, or as a copy of
// itself (the kernel's ids are unique).
func (f *finder) known(info fs.FileInfo, dir string) bool {
	return slices.ContainsFunc(f.found, func(d Dir) bool {
		return os.SameFile(d.info, info) || path.Base(d.Path) == path.Base(dir)
	})
}

// follow is where a link leads, below root, and false for what is no link. An
// absolute link means the root that it stands in.
func follow(root *os.Root, link string) (string, bool) {
	target, err := root.Readlink(link)
	if err != nil {
		return link, false
	}
	if path.IsAbs(target) {
		return strings.TrimPrefix(path.Clean(target), "/"), true
	}
	return path.Join(path.Dir(link), target), true
}
