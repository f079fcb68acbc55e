package dvfs

import (
	"bufio"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/rapl/sysfs"
)

// fixture lays out a tree of testdata, with values of files replaced by change.
func fixture(t *testing.T, name string, change map[string]string) *os.Root {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".tree"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	dir := t.TempDir()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		file, value, ok := strings.Cut(lines.Text(), " = ")
		if !ok || strings.HasPrefix(file, "#") {
			continue
		}
		if other, changed := change[path.Base(file)]; changed {
			value = other
		}
		put(t, filepath.Join(dir, file), value)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// files opens the files of a root.
func files(t *testing.T, root *os.Root) *sysfs.Files {
	t.Helper()
	f, err := sysfs.NewFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func put(t *testing.T, file, value string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// kernel gives a tree of plain files the answers of the kernel's cpufreq core.
type kernel struct {
	disk    sysfs.Opener
	offline map[string]bool // policies whose CPUs are offline: EBUSY
	epoch   int             // files opened in an earlier one are gone: ENODEV
	old     bool            // before 5.4: a ceiling below the floor is EINVAL
	locked  bool            // firmware holds the turbo switch
	deaf    bool            // ceilings are taken without an error and without effect
	roundTo int64           // ceilings are rounded down to multiples, 0: not
	lateBy  time.Duration   // bounds are carried out so much later, as since Linux 5.5
}

func boot(root *os.Root) *kernel {
	return &kernel{disk: sysfs.Disk(root), offline: map[string]bool{}}
}

func (k *kernel) open(file string, write bool) (sysfs.File, error) {
	f, err := k.disk(file, write)
	if err != nil {
		return nil, err
	}
	return &kernelFile{File: f, kernel: k, file: file, epoch: k.epoch}, nil
}

func (k *kernel) value(file string) int64 {
	v, err := k.disk.ReadInt(file)
	if err != nil {
		return 0
	}
	return v
}

type kernelFile struct {
	sysfs.File
	kernel *kernel
	file   string
	epoch  int
}

func (f *kernelFile) away() error {
	switch {
	case f.epoch != f.kernel.epoch:
		return unix.ENODEV
	case f.kernel.offline[path.Base(path.Dir(f.file))]:
		return unix.EBUSY
	}
	return nil
}

func (f *kernelFile) Pread(buf []byte) (int, error) {
	if err := f.away(); err != nil {
		return 0, err
	}
	return f.File.Pread(buf)
}

func (f *kernelFile) Pwrite(text []byte) (int, error) {
	if err := f.away(); err != nil {
		return 0, err
	}
	k, at := f.kernel, path.Dir(f.file)
	v, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	switch path.Base(f.file) {
	case "scaling_max_freq":
		if k.deaf {
			return len(text), nil
		}
		if k.old && v < k.value(path.Join(at, "scaling_min_freq")) {
			return 0, unix.EINVAL
		}
		v = min(max(v, k.value(path.Join(at, "cpuinfo_min_freq"))), k.value(path.Join(at, "cpuinfo_max_freq")))
		if k.roundTo > 0 {
			v -= v % k.roundTo
		}
		return len(text), f.later(strconv.FormatInt(v, 10))
	case "scaling_min_freq":
		if k.old && v > k.value(path.Join(at, "scaling_max_freq")) {
			return 0, unix.EINVAL
		}
		return len(text), f.later(strconv.FormatInt(v, 10))
	case "energy_performance_preference":
		governor, _ := k.disk.ReadText(path.Join(at, "scaling_governor"))
		if governor == "performance" && strings.TrimSpace(string(text)) != "performance" {
			return 0, unix.EBUSY
		}
	case "no_turbo":
		if k.locked {
			return 0, unix.EPERM
		}
	}
	return f.File.Pwrite(text)
}

// later puts text as the kernel's worker does, in time to come where it is late.
func (f *kernelFile) later(text string) error {
	if f.kernel.lateBy == 0 {
		return f.put(text)
	}
	time.AfterFunc(f.kernel.lateBy, func() {
		// A descriptor of its own: whoever wrote may have closed the file by then.
		if own, err := f.kernel.disk(f.file, true); err == nil {
			_, _ = own.Pwrite([]byte(text + "\n"))
			_ = own.Close()
		}
	})
	return nil
}

func (f *kernelFile) put(text string) error {
	_, err := f.File.Pwrite([]byte(text + "\n"))
	return err
}

// started opens the policies of a fixture as a kernel shows them.
func started(t *testing.T, name string, change map[string]string) (*Set, *kernel) {
	t.Helper()
	root := fixture(t, name, change)
	k := boot(root)
	set, err := find(&Set{root: root, open: numbered(k.open)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	return set, k
}

func hand(t *testing.T, p *Policy) *Ceiling {
	t.Helper()
	c, err := p.Ceiling()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func hands(t *testing.T, s *Set) *Ceilings {
	t.Helper()
	c, err := s.Ceilings()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
