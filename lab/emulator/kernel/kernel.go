// Package kernel emulates the kernel's view of a plant: the files of sysfs and proc, with the
// meaning of reading and writing each.
//
// The one idea: a file of sysfs is two functions. Show returns its text and store accepts a text,
// and both may return an error number. This package has them for every file of a machine of a given
// Shape, and does not depend on how a file reaches a reader. Package treefs puts them behind a
// FUSE mount, which passes the error numbers on, or copies the values to plain files, which cannot.
//
// The semantics are those of Linux 6.1 with its real drivers on simulated registers: a failed zone
// read is EINVAL, a failed limit write ENODATA, a limit is truncated to 15 bits of 1/8 W, `enabled`
// of a locked zone reads 0 and returns ENOSYS, and a driver that ignores the register's result
// reports success. Frequency bounds can be applied later by a worker (DeferBounds), as since Linux
// 5.5.
//
// Guarantees: it is pure, with no I/O, clock or goroutine. A Tree and its plant must be used by one
// goroutine at a time; the caller ensures that.
package kernel

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"headroom/lab/emulator/plant"
)

// Pace is how soon a file's text changes, or how soon a write to it must act
// where writes must be polled for.
type Pace int

// Paces of files.
const (
	Fixed  Pace = iota // never changes
	Quick              // moves with every step of the plant: energy counters
	Slow               // moves, and need not be fresh: temperatures, CPU time
	Prompt             // is written by others and acts at once: power limits
	Soon               // is written by others and may act a little later: frequencies
	Seldom             // is written by others, and most such writes have no effect
)

// Attr is one file.
type Attr struct {
	// Path is below the root, without a leading slash.
	Path string
	// Mode is the file's permission bits.
	Mode fs.FileMode
	// Pace is how soon the text changes.
	Pace Pace

	show  func() (string, error)
	store func(string) error // nil: the kernel refuses to open it for writing
	role  role
	zone  *zone // of a powercap attribute
	cpu   int   // of a cpufreq attribute, else -1

	bounds *policy // whose frequency the file bounds, else nil
}

// role is what a fault aims at.
type role int

const (
	plain    role = iota
	counter       // energy_uj
	bound         // a zone's limits and windows
	switches      // a zone's enabled
)

// Tree is the kernel's view of one plant.
type Tree struct {
	plant  *plant.Plant
	shape  Shape
	attrs  []*Attr
	byPath map[string]*Attr
	links  map[string]string
	dirs   []string

	faults   Faults
	frozen   map[*Attr]string // what frozen counters show
	turbo    *turbo
	policies []*policy
	deferred bool // bounds of frequency are carried out by a worker
	booted   time.Time
	ticks    []float64 // busy time of each virtual CPU, in USER_HZ
	elapsed  float64   // all time of one virtual CPU, in USER_HZ
}

// Identity distinguishes one machine and one boot of it from others.
type Identity struct {
	MachineID string    // 32 hexadecimal digits
	BootID    string    // a UUID
	Booted    time.Time // btime in proc/stat
}

// New is the tree of a machine of the given shape. p must have been made of
// shape.Spec, or of one with as many packages.
func New(p *plant.Plant, shape Shape, id Identity) *Tree {
	t := &Tree{
		plant: p, shape: shape, byPath: make(map[string]*Attr), links: make(map[string]string),
		booted: id.Booted, ticks: make([]float64, p.Spec().Cores),
	}
	t.powercap()
	t.cpus()
	t.cpufreq()
	t.sensors()
	t.proc(id)
	return t
}

// Attrs are the files, in no order that matters. The slice is the tree's own.
func (t *Tree) Attrs() []*Attr { return t.attrs }

// Links are the symbolic links: path to target. The map is the tree's own.
func (t *Tree) Links() map[string]string { return t.links }

// Dirs are folders that are there even without a file in them.
func (t *Tree) Dirs() []string { return t.dirs }

// Lookup is the file at path, or nil. Links are not followed.
func (t *Tree) Lookup(path string) *Attr { return t.byPath[path] }

// Read is the file's text, without the line break at its end, or the error number
// (syscall.Errno) that a reader gets.
func (t *Tree) Read(a *Attr) (string, error) {
	if err := t.faults.reading(a); err != nil {
		return "", err
	}
	if a.cpu >= 0 && !t.plant.Online(a.cpu) {
		return "", syscall.EBUSY // cpufreq: the policy is inactive
	}
	text, err := a.show()
	if a.bounds != nil {
		a.bounds.work() // it was seen once; the worker comes right behind
	}
	if held, ok := t.frozen[a]; ok {
		return held, nil
	}
	return text, err
}

// Write gives the file text, which may end in one line break. The error is the
// number (syscall.Errno) that a writer gets; nil does not mean that the value was
// taken.
func (t *Tree) Write(a *Attr, text string) error {
	text = strings.TrimSuffix(text, "\n")
	if a.store == nil {
		return syscall.EACCES
	}
	if err := t.faults.opening(a); err != nil {
		return err
	}
	if a.cpu >= 0 && !t.plant.Online(a.cpu) {
		return syscall.EBUSY
	}
	return a.store(text)
}

// Open is the error number of opening the file for reading or writing, or nil.
func (t *Tree) Open(a *Attr, write bool) error {
	if write && a.store == nil {
		return syscall.EACCES
	}
	return t.faults.opening(a)
}

// Step lets dt go by for what the kernel itself counts. It is called after the plant's own step.
func (t *Tree) Step(dt time.Duration) {
	for _, p := range t.policies {
		p.work()
	}
	t.elapsed += dt.Seconds() * userHz
	for cpu := range t.ticks {
		if t.plant.Online(cpu) {
			t.ticks[cpu] += dt.Seconds() * userHz * t.plant.At(cpu).Utilisation()
		}
	}
}

// add puts a file on the tree.
func (t *Tree) add(a *Attr) *Attr {
	t.attrs = append(t.attrs, a)
	t.byPath[a.Path] = a
	return a
}

// fixed adds read-only files, given as name, value pairs, that never change.
func (t *Tree) fixed(dir string, pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		t.add(&Attr{Path: path.Join(dir, pair[0]), Mode: 0o444, cpu: -1, show: say(pair[1])})
	}
}

// reading adds a read-only file that changes.
func (t *Tree) reading(name string, pace Pace, show func() (string, error)) *Attr {
	return t.add(&Attr{Path: name, Mode: 0o444, Pace: pace, cpu: -1, show: show})
}

// control adds a file that others write.
func (t *Tree) control(name string, pace Pace, show func() (string, error), store func(string) error) *Attr {
	return t.add(&Attr{Path: name, Mode: 0o644, Pace: pace, cpu: -1, show: show, store: store})
}

// inert adds a file that takes no value: what is written well is answered with
// errno (nil: as if it had been taken), and value stays.
func (t *Tree) inert(name, value string, check func(string) error, errno error) *Attr {
	return t.control(name, Seldom, say(value), func(text string) error {
		if err := check(text); err != nil {
			return err
		}
		return errno
	})
}

// link makes the relative link that sysfs would have at from.
func (t *Tree) link(from, to string) {
	up := strings.Count(from, "/")
	common, a, b := 0, strings.Split(from, "/"), strings.Split(to, "/")
	for common < len(a)-1 && common < len(b) && a[common] == b[common] {
		common++
	}
	t.links[from] = strings.Repeat("../", up-common) + strings.Join(b[common:], "/")
}

// say is a show function of a text that never changes.
func say(text string) func() (string, error) { return func() (string, error) { return text, nil } }

// number is a show function of a number.
func number[T ~int | ~int64](v func() T) func() (string, error) {
	return func() (string, error) { return format(v()), nil }
}

// format is a kernel value as text.
func format[T ~int | ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }

func formatBool(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
