package emulator

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/plant"
	"headroom/lab/emulator/treefs"
	"headroom/units"
)

// View is the plant's state at one moment, as written to run/plant.json.
type View struct {
	// AtUs is the moment in microseconds of Unix time.
	AtUs int64 `json:"at_us"`
	// WallW is the power at the wall now, Wall1sW its mean over the last second
	// (less at the start), in watts.
	WallW   float64 `json:"wall_w"`
	Wall1sW float64 `json:"wall_1s_w"`
	// FreqHz is the highest effective frequency of any CPU, in hertz.
	FreqHz float64 `json:"freq_hz"`
	// Utilisation is used over allowed CPU time, 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// EnergyJ is the energy at the wall since the node's boot, in joules.
	EnergyJ float64 `json:"energy_j"`
	// ThrottledBy is "cgroup" or "signals", or "" where the plant slows no processes.
	ThrottledBy string `json:"throttled_by"`
	// Tree is "plain files" or "fuse".
	Tree string `json:"tree"`
}

// Node is a plant behind the kernel's file tree. Step and Close belong to one
// goroutine; View and SetFaults may be called from any.
type Node struct {
	dir  string
	root *os.Root

	// mu guards plant and tree: readers of a mounted tree come from anywhere.
	mu    sync.Mutex
	plant *plant.Plant
	tree  *kernel.Tree

	files *treefs.Files // one of these two
	mount *treefs.Mount

	throttledBy string

	sinceView time.Duration
	marks     []mark // at every view of the last second, oldest first
	view      atomic.Pointer[View]
	file      *viewFile // run/plant.json
}

// mark is a reading of the wall energy, for the mean over a second.
type mark struct {
	at     time.Duration
	energy units.Energy
}

const (
	// viewEvery is how often (in the plant's time) the view and the slower files are written.
	viewEvery = 100 * time.Millisecond
	// viewSpan is what wall_1s_w is the mean over.
	viewSpan = time.Second
)

// NewNode boots an emulated node of the default shape, made of spec, in the folder
// dir, its tree as plain files.
func NewNode(dir string, spec Spec) (*Node, error) {
	shape := kernel.Shapes()[0]
	shape.Spec = spec
	return newNode(dir, shape, false)
}

// newNode boots an emulated node in the folder dir: dir/root is its file tree,
// dir/run/plant.json the plant's own view. The machine id is made once per folder
// and kept; the boot id is new at each call, and limits are at their factory
// values. It fails with plant.ErrSpec, with treefs.ErrNoFUSE where a mount was
// required and is not possible, or when files cannot be made.
func newNode(dir string, shape kernel.Shape, mount bool) (*Node, error) {
	p, err := plant.New(shape.Spec)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"root/etc", "run", "state", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("emulator: node folder: %w", err)
		}
	}
	n := &Node{dir: dir, plant: p, marks: []mark{{}}}
	if err := n.attach(shape, mount); err != nil {
		return nil, errors.Join(fmt.Errorf("emulator: %w", err), n.Close())
	}
	return n, n.observe()
}

// attach makes the tree and puts it where programs can open it.
func (n *Node) attach(shape kernel.Shape, mount bool) (err error) {
	if n.root, err = os.OpenRoot(n.RootDir()); err != nil {
		return err
	}
	if n.file, err = openView(filepath.Join(n.dir, "run", "plant.json")); err != nil {
		return err
	}
	id, err := identify(n.root)
	if err != nil {
		return err
	}
	n.tree = kernel.New(n.plant, shape, id)
	if !mount {
		n.files, err = treefs.NewFiles(n.root, n.tree)
		return err
	}
	n.mount, err = treefs.NewMount(n.RootDir(), n.tree, &n.mu)
	return err
}

// RootDir is the node's file tree: what powerd's `root:` names.
func (n *Node) RootDir() string { return filepath.Join(n.dir, "root") }

// Plant is the physics, for assertions between steps.
func (n *Node) Plant() *plant.Plant { return n.plant }

// View is the plant's view at the last multiple of 100 ms.
func (n *Node) View() View { return *n.view.Load() }

// Step takes over what was written to the tree, lets dt go by with the CPUs busy
// for util (0 to 1) of the time allowed to them, and publishes what became of it.
// A file that cannot be read or written does not stop the plant: the errors are
// joined.
func (n *Node) Step(dt time.Duration, util float64) error {
	n.mu.Lock()
	var errs []error
	if n.files != nil {
		errs = append(errs, n.files.Poll())
	}
	n.plant.Step(dt, util)
	n.tree.Step(dt)
	if n.files != nil {
		errs = append(errs, n.files.Publish())
	}
	n.mu.Unlock()
	if n.sinceView += dt; n.sinceView >= viewEvery {
		n.sinceView %= viewEvery
		errs = append(errs, n.observe())
	}
	return errors.Join(errs...)
}

// SetFaults replaces the faults of the tree. Plain files do not show those of error numbers.
func (n *Node) SetFaults(f kernel.Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tree.SetFaults(f)
}

// setWallLimit has the machine hold a limit at the wall by itself, as a BMC's
// limit does; 0 ends it.
func (n *Node) setWallLimit(to units.Power) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plant.SetWallLimit(to)
}

// Wall is the mean power at the wall over the last second.
func (n *Node) Wall() units.Power { return units.FromWatts(n.View().Wall1sW) }

// observe makes a new view and writes it and the slower files.
func (n *Node) observe() error {
	v, slower := n.look()
	n.view.Store(v)
	text, err := json.Marshal(v)
	if err == nil {
		err = n.file.put(text)
	}
	return errors.Join(slower, err)
}

// look makes a new view and writes the slower files.
func (n *Node) look() (*View, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := &View{
		AtUs:  time.Now().UnixMicro(),
		WallW: n.plant.Wall().Watts(), Wall1sW: n.meanWall().Watts(),
		FreqHz: n.plant.Freq().Hertz(), Utilisation: n.plant.Utilisation(),
		EnergyJ: n.plant.WallEnergy().Joules(), ThrottledBy: n.throttledBy, Tree: "plain files",
	}
	if n.files == nil {
		v.Tree = "fuse"
		return v, nil
	}
	return v, n.files.Observe()
}

// meanWall is the mean wall power over the last second.
func (n *Node) meanWall() units.Power {
	now := mark{n.plant.Elapsed(), n.plant.WallEnergy()}
	n.marks = append(n.marks, now)
	for len(n.marks) > 2 && now.at-n.marks[1].at >= viewSpan {
		n.marks = n.marks[1:]
	}
	first := n.marks[0]
	if now.at == first.at {
		return n.plant.Wall()
	}
	return (now.energy - first.energy).Over(now.at - first.at)
}

// Close closes the tree's files, which stay where they are, or takes the mount
// down.
func (n *Node) Close() error {
	var errs []error
	if n.files != nil {
		errs = append(errs, n.files.Close())
	}
	if n.mount != nil {
		errs = append(errs, n.mount.Close())
	}
	if n.root != nil {
		errs = append(errs, n.root.Close())
	}
	return errors.Join(append(errs, n.file.Close())...)
}

var machineID = regexp.MustCompile(`^[0-9a-f]{32}\n$`)

// identify gives the node its machine id, unless it has one, and a new boot id.
func identify(root *os.Root) (id kernel.Identity, err error) {
	var random [32]byte
	_, _ = rand.Read(random[:])
	have, err := root.ReadFile("etc/machine-id")
	if err != nil || !machineID.Match(have) {
		have = []byte(hex.EncodeToString(random[:16]) + "\n")
		_ = root.Remove("etc/machine-id")
		if err := root.WriteFile("etc/machine-id", have, 0o444); err != nil {
			return id, err
		}
	}
	boot := random[16:]
	boot[6], boot[8] = boot[6]&0x0f|0x40, boot[8]&0x3f|0x80 // RFC 9562, version 4
	h := hex.EncodeToString(boot)
	return kernel.Identity{
		MachineID: strings.TrimSpace(string(have)), Booted: time.Now(),
		BootID: strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"),
	}, nil
}
