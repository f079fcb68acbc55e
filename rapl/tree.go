// Package rapl measures and limits processor power through the powercap tree.
//
// A Zone is one power domain. It is identified by its name file and its device, never by the
// number in its directory's name: numbers follow the order of registration, and
// "intel-rapl:1" is the second socket on one machine and the whole platform on another.
// Reading (Zone, Meter) never changes the machine. A separate type (Limiter) writes, and
// reads back each write, because firmware may refuse or round a limit without an error.
//
// Guarantees: every path is resolved inside one os.Root; a zone that appears under several
// links is one zone; a wrapped counter is distinguished from a reset one; an unknown value is
// reported as unknown with the reason, never guessed; a limit of 0 W, or one that the
// register would truncate, is never written; a write without effect is reported as a lock,
// whatever the kernel returned. The package knows no caps, leases or network, and does not
// decide what to write.
package rapl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"headroom/internal/each"
	"headroom/rapl/sysfs"
	"headroom/units"
)

// Control types that RAPL registers.
const (
	ControlMSR  = "intel-rapl"      // limits in model-specific registers (Intel and AMD)
	ControlMMIO = "intel-rapl-mmio" // the same domains through memory-mapped registers
	ControlRegs = "msr"             // registers read by this process, past the kernel's driver
)

// Kind is what a zone measures.
type Kind int

// Kinds of zone.
const (
	Other   Kind = iota // unknown name
	Package             // a processor package, or one die of it
	Core                // the cores of a package
	Uncore              // graphics and other parts of a package beside its cores
	DRAM                // memory of a package
	PSys                // the whole platform
)

// String is the kind in the words that status shows.
func (k Kind) String() string {
	switch k {
	case Package:
		return "package"
	case Core:
		return "core"
	case Uncore:
		return "uncore"
	case DRAM:
		return "dram"
	case PSys:
		return "psys"
	case Other:
	}
	return "other"
}

// Zone is one power domain, open for reading. Its readings are for one
// goroutine at a time.
type Zone struct {
	// Kind is what the zone measures.
	Kind Kind
	// Control is the control type: ControlMSR, ControlMMIO or ControlRegs.
	Control string
	// Name is the content of the zone's name file: "package-0", "package-1-die-0", "dram".
	Name string
	// Label is unique in the tree and fit for screens: "package-0", "dram-0".
	Label string
	// Parent is the zone that contains this one, nil at the top.
	Parent *Zone
	// Dir is the zone's own directory below the root, links resolved.
	Dir string
	// Range is the value at which the energy counter wraps, 0 if unknown.
	Range units.Energy

	energy      *sysfs.Attr // nil when the zone has no counter, or none we may read
	energyErr   error
	enabled     *sysfs.Attr // nil for a zone without limits
	locked      *sysfs.Attr // nil if the source has none (powercap)
	constraints []*Constraint
	twins       []*Zone
	copyOf      *Zone // the zone of the same domain and control type that counts; nil: this one
	open        sysfs.Opener
	info        fs.FileInfo // nil where zones are not directories (registers)
	gone        bool
	generation  int // Invariant: counts up each time the zone's files are opened again
}

// Dir is where one zone is found.
type Dir struct {
	Path    string // of the zone's directory, below the root
	Control string // control type

	info fs.FileInfo
}

// Tree is the set of RAPL zones of one machine. Close gives its descriptors
// back; the os.Root stays its owner's. It is for one goroutine.
type Tree struct {
	zones   []*Zone
	skipped error
	root    *os.Root // nil: the set of zones is fixed
	open    sysfs.Opener
}

// Open finds the RAPL zones below root and opens their counters and limits for
// reading. It fails with ErrNoTree or ErrNoZone when there is nothing to find.
// An unreadable zone is skipped; Skipped returns which, and why.
func Open(root *os.Root) (*Tree, error) { return openTree(root, sysfs.Disk(root)) }

// openTree is Open with another function to open files.
func openTree(root *os.Root, open sysfs.Opener) (*Tree, error) {
	dirs, err := find(root)
	if dirs == nil {
		return nil, err
	}
	t, errOpen := OpenZones(open, dirs)
	if errOpen != nil {
		return nil, errors.Join(err, errOpen)
	}
	t.root, t.skipped = root, errors.Join(err, t.skipped)
	return t, nil
}

// OpenZones opens zones whose places are known and whose files open opens: the
// way in for a source that is no powercap tree but looks like one. Its set of
// zones is fixed: Refresh finds no change.
func OpenZones(open sysfs.Opener, dirs []Dir) (*Tree, error) {
	t := &Tree{open: open}
	var failed []error
	for _, d := range dirs {
		z, err := openZone(open, d)
		if err != nil {
			failed = append(failed, fmt.Errorf("rapl: %s: %w", d.Path, err))
			continue
		}
		t.zones = append(t.zones, z)
	}
	if len(t.zones) == 0 {
		return nil, errors.Join(append(failed, fmt.Errorf("rapl: %w", ErrNoZone))...)
	}
	t.link()
	t.skipped = errors.Join(failed...)
	return t, nil
}

// Skipped is why zones were left out, nil when none was.
func (t *Tree) Skipped() error { return t.skipped }

// Zones are all zones: packages first, each followed by the zones inside it.
func (t *Tree) Zones() []*Zone { return t.zones }

// OfKind are the zones of one kind that are independent of each other: where a
// domain is registered through MSR and MMIO, it is listed once, as MSR, and where two drivers
// register it under one control type (MSR and TPMI), once, since both count the same energy.
// Counting those watts twice is the usual mistake. A limit is written there only: hardware
// obeys the lower of the two.
// Zones of kind PSys are listed, but contain each other and everything else:
// they are shown side by side and never summed.
func (t *Tree) OfKind(k Kind) []*Zone {
	return each.Where(t.zones, func(z *Zone) bool { return z.Kind == k && !z.shadow() })
}

// Twins returns the other zones of the same domain as z, of another
// control type or another driver. The lower of their limits wins in hardware.
func (t *Tree) Twins(z *Zone) []*Zone { return z.twins }

// EnergyOnly reports whether no package has a limit: normal on AMD, whose registers
// count energy and hold no limits.
func (t *Tree) EnergyOnly() bool {
	return !slices.ContainsFunc(t.zones, func(z *Zone) bool { return z.Kind == Package && !z.EnergyOnly() })
}

// Close closes all descriptors.
func (t *Tree) Close() error {
	return errors.Join(each.Of(t.zones, (*Zone).close)...)
}

// shadow reports whether z repeats a zone of ControlMSR, or of another driver.
func (z *Zone) shadow() bool { return z.Control == ControlMMIO && len(z.twins) > 0 || z.copyOf != nil }

// Repeats reports whether z is the same domain as another zone of its control type, which counts.
func (z *Zone) Repeats() bool { return z.copyOf != nil }

// first is the zone of z's domain that counts in its control type: the first that takes a limit, or the
// first. The names of packages carry their number, so zones of one name are one package; platform
// zones share names.
func (t *Tree) first(z *Zone) *Zone {
	if z.gone || z.Kind != Package && (z.Parent == nil || z.Parent.Kind != Package) {
		return z
	}
	first := z
	for _, o := range slices.Backward(t.zones) {
		if !o.gone && o.Control == z.Control && o.domain() == z.domain() && (!o.EnergyOnly() || first.EnergyOnly()) {
			first = o
		}
	}
	return first
}

// link finds parents and twins, names the zones and sorts them.
func (t *Tree) link() {
	for _, z := range t.zones {
		z.Parent = t.parent(z)
	}
	for _, z := range t.zones {
		if z.copyOf = t.first(z); z.copyOf == z {
			z.copyOf = nil
		}
	}
	for _, z := range t.zones {
		z.twins = nil
		for _, o := range t.zones {
			if o != z && o.domain() == z.domain() && (o.Control != z.Control || o.Repeats() || z.Repeats()) {
				z.twins = append(z.twins, o)
			}
		}
	}
	seen := make(map[string]int)
	for _, z := range t.zones {
		if z.Label = z.label(); !z.Repeats() {
			seen[z.Label]++
		}
	}
	for _, z := range t.zones {
		if seen[z.Label] > 1 || z.Repeats() { // several platform zones of one name: only the device distinguishes them
			z.Label += "@" + path.Base(z.Dir)
		}
	}
	slices.SortStableFunc(t.zones, func(a, b *Zone) int { return strings.Compare(a.order(), b.order()) })
}

// parent returns the zone that contains z: by directory, and in a tree without
// nesting by the kernel's id, which carries the parent's id in front.
func (t *Tree) parent(z *Zone) *Zone {
	id := path.Base(z.Dir)
	var up string
	if strings.Count(id, ":") > 1 {
		up = id[:strings.LastIndexByte(id, ':')]
	}
	var flat *Zone
	for _, o := range t.zones {
		if o == z || o.Control != z.Control {
			continue
		}
		if o.Dir == path.Dir(z.Dir) {
			return o
		}
		if up != "" && path.Base(o.Dir) == up {
			flat = o
		}
	}
	return flat
}

// domain names the power domain of the zone, whatever its control type.
func (z *Zone) domain() string {
	if z.Parent == nil {
		return z.Name
	}
	return z.Parent.Name + "/" + z.Name
}

// label is the name as status shows it: sub-zones carry their package's number.
func (z *Zone) label() string {
	label := z.Name
	if z.Parent != nil {
		label += strings.TrimPrefix(z.Parent.Name, "package")
	}
	if z.Control == ControlMMIO {
		label += "-mmio"
	}
	return label
}

// order sorts by control type, then package and die by number, then inside a die.
func (z *Zone) order() string {
	top, inner := z, ""
	if z.Parent != nil {
		top, inner = z.Parent, fmt.Sprintf("%d%s", z.Kind, z.Name)
	}
	rank := 1
	if top.Kind == Package {
		rank = 0
	}
	socket, die, _ := numbers(top.Name)
	return fmt.Sprintf("%s %d %06d %06d %s %s", z.Control, rank, socket, die, top.Dir, inner)
}

// Socket is the number of the processor package that z is, or is a part of, and
// false for a platform zone.
func (z *Zone) Socket() (int, bool) {
	n, _, ok := z.place()
	return n, ok
}

// Die is the number of the die that z is, or is a part of, and false where the
// package is one zone.
func (z *Zone) Die() (int, bool) {
	_, die, ok := z.place()
	return max(0, die), ok && die >= 0
}

func (z *Zone) place() (socket, die int, ok bool) {
	if z.Parent != nil {
		return numbers(z.Parent.Name)
	}
	return numbers(z.Name)
}

// numbers are N and M of "package-N-die-M"; M is -1 for "package-N".
func numbers(name string) (socket, die int, ok bool) {
	rest, ok := strings.CutPrefix(name, "package-")
	if !ok {
		return 0, -1, false
	}
	digits, inner, multi := strings.Cut(rest, "-die-")
	socket, ok = number(digits)
	if !ok || !multi {
		return socket, -1, ok
	}
	die, ok = number(inner)
	return socket, die, ok
}

func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

func kindOf(name string) Kind {
	if _, _, ok := numbers(name); ok {
		return Package
	}
	switch name {
	case "core":
		return Core
	case "uncore":
		return Uncore
	case "dram":
		return DRAM
	case "psys", "platform":
		return PSys
	}
	if strings.HasPrefix(name, "psys-") {
		return PSys
	}
	return Other
}
