// Package rapl measures and limits processor power through the powercap tree.
//
// A Zone is one power domain, found by what it calls itself (its name file) and
// by the device it stands for, never by the number in its directory's name:
// numbers follow the order of registration, and "intel-rapl:1" is the second
// socket on one machine and the whole platform on the next. Reading (Zone,
// Meter) never changes the machine; what can write is another type (Limiter),
// and each write is read back, because firmware may refuse or round a limit
// without an error.
//
// Guarantees: every path is resolved inside one os.Root; a zone that shows up
// under several links is one zone; a counter that wrapped is told from one that
// was reset, and what cannot be known is reported as unknown, never guessed; a
// limit of 0 W is never written. The package knows no caps, no leases and no
// network, and it never decides what to write.
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

	"headroom/rapl/sysfs"
	"headroom/units"
)

// classDir is where the kernel links every powercap zone (powercap.rst).
const classDir = "sys/class/powercap"

// zonesMax bounds the walk: 8 sockets of 4 dies with 4 zones each, twice
// (MSR and MMIO), is the largest machine known.
const zonesMax = 256

// Control types that RAPL registers.
const (
	ControlMSR  = "intel-rapl"      // limits in model-specific registers (Intel and AMD)
	ControlMMIO = "intel-rapl-mmio" // the same domains through memory-mapped registers
)

// Kind says what a zone measures.
type Kind int

// Kinds of zone.
const (
	Other   Kind = iota // a name this package does not know
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
	// Control is the control type: ControlMSR or ControlMMIO.
	Control string
	// Name is what the zone calls itself: "package-0", "package-1-die-0", "dram".
	Name string
	// Label is unique in the tree and fit for screens: "package-0", "dram-0".
	Label string
	// Parent is the zone that contains this one, nil at the top.
	Parent *Zone
	// Dir is the zone's own directory below the root, links resolved.
	Dir string
	// Range is where the energy counter wraps, 0 when the zone does not say.
	Range units.Energy

	energy      *sysfs.Attr // nil when the zone has no counter, or none we may read
	energyErr   error
	constraints []*Constraint
	enabled     *sysfs.Attr
	info        fs.FileInfo
	root        *os.Root
}

// Tree is the set of RAPL zones of one machine. Close gives its descriptors
// back; the os.Root stays its owner's.
type Tree struct {
	zones   []*Zone
	skipped error
}

// Open finds the RAPL zones below root and opens their counters and limits for
// reading. It fails with ErrNoTree or ErrNoZone when there is nothing to find.
// A zone that cannot be read is left out; Skipped says which and why.
func Open(root *os.Root) (*Tree, error) {
	entries, err := fs.ReadDir(root.FS(), classDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rapl: %s: %w", classDir, ErrNoTree)
	}
	if err != nil {
		return nil, fmt.Errorf("rapl: %w", err)
	}
	t := &Tree{}
	var failed []error
	for _, e := range entries[:min(len(entries), zonesMax)] {
		control, number, isZone := strings.Cut(e.Name(), ":")
		if !isZone || number == "" || (control != ControlMSR && control != ControlMMIO) {
			continue
		}
		if err := t.add(root, path.Join(classDir, e.Name()), control); err != nil {
			failed = append(failed, fmt.Errorf("rapl: %s: %w", e.Name(), err))
		}
	}
	if len(t.zones) == 0 {
		failed = append(failed, fmt.Errorf("rapl: %s: %w", classDir, ErrNoZone))
		return nil, errors.Join(failed...)
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
// domain is registered through MSR and MMIO, it is listed once, as MSR, since
// both count the same energy. Counting those watts twice is the usual mistake.
func (t *Tree) OfKind(k Kind) []*Zone {
	var found []*Zone
	for _, z := range t.zones {
		if z.Kind == k && !t.mirrored(z) {
			found = append(found, z)
		}
	}
	return found
}

// Twins are the other zones that stand for the same domain as z through another
// control type. The lower of their limits wins in hardware.
func (t *Tree) Twins(z *Zone) []*Zone {
	var twins []*Zone
	for _, o := range t.zones {
		if o != z && o.Control != z.Control && o.domain() == z.domain() {
			twins = append(twins, o)
		}
	}
	return twins
}

// Close gives all descriptors back.
func (t *Tree) Close() error {
	var errs []error
	for _, z := range t.zones {
		errs = append(errs, z.close())
	}
	return errors.Join(errs...)
}

func (t *Tree) mirrored(z *Zone) bool {
	return z.Control == ControlMMIO && len(t.Twins(z)) > 0
}

// add opens one zone, unless it is already known under another link.
func (t *Tree) add(root *os.Root, link, control string) error {
	info, err := root.Stat(link)
	if err != nil {
		return err
	}
	if !info.IsDir() || slices.ContainsFunc(t.zones, func(z *Zone) bool { return os.SameFile(z.info, info) }) {
		return nil
	}
	z, err := openZone(root, resolve(root, link), control)
	if err != nil {
		return err
	}
	z.info = info
	t.zones = append(t.zones, z)
	return nil
}

// resolve is where a class link leads. Class links are one step deep; what is
// no link is its own directory (a tree made without links).
func resolve(root *os.Root, link string) string {
	target, err := root.Readlink(link)
	if err != nil || path.IsAbs(target) {
		return link
	}
	return path.Join(path.Dir(link), target)
}

// link finds each zone's parent by directory, names the zones and sorts them.
func (t *Tree) link() {
	byDir := make(map[string]*Zone, len(t.zones))
	for _, z := range t.zones {
		byDir[z.Dir] = z
	}
	for _, z := range t.zones {
		z.Parent = byDir[path.Dir(z.Dir)]
	}
	seen := make(map[string]int)
	for _, z := range t.zones {
		z.Label = z.label()
		seen[z.Label]++
	}
	for _, z := range t.zones {
		if seen[z.Label] > 1 { // several platform zones of one name: only the device tells them apart
			z.Label += "@" + path.Base(z.Dir)
		}
	}
	slices.SortFunc(t.zones, func(a, b *Zone) int { return strings.Compare(a.order(), b.order()) })
}

// domain names what the zone stands for, whatever control type shows it.
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

// order sorts by control type, then package by number, then inside a package.
func (z *Zone) order() string {
	top, inner := z, ""
	if z.Parent != nil {
		top, inner = z.Parent, fmt.Sprintf("%d%s", z.Kind, z.Name)
	}
	rank := 1
	if top.Kind == Package {
		rank = 0
	}
	number, _ := packageNumber(top.Name)
	return fmt.Sprintf("%s %d %06d %s %s", z.Control, rank, number, top.Dir, inner)
}

// packageNumber is N of "package-N" and "package-N-die-M".
func packageNumber(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "package-")
	if !ok {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}

func kindOf(name string) Kind {
	if _, ok := packageNumber(name); ok {
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
