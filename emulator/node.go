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
	"sync/atomic"
	"time"

	"headroom/emulator/plant"
	"headroom/units"
)

// TreeKind says in words what a node's file tree is and what it cannot do.
const TreeKind = "plain files"

// View is what the plant itself knows of one moment; run/plant.json holds it.
type View struct {
	// AtUs is the moment in microseconds of Unix time.
	AtUs int64 `json:"at_us"`
	// WallW is the power at the wall now, Wall1sW its mean over the last second
	// (less at the start), in watts.
	WallW   float64 `json:"wall_w"`
	Wall1sW float64 `json:"wall_1s_w"`
	// PackageW and DRAMW are parts of it, behind the supply, in watts.
	PackageW float64 `json:"package_w"`
	DRAMW    float64 `json:"dram_w"`
	// FreqHz is the highest effective frequency of any CPU, in hertz.
	FreqHz float64 `json:"freq_hz"`
	// Utilisation is used over allowed CPU time, 0 to 1.
	Utilisation float64 `json:"utilisation"`
	// EnergyJ is the energy at the wall since the node's boot, in joules.
	EnergyJ float64 `json:"energy_j"`
	// ThrottledBy is "cgroup" or "signals", or "nothing" where the plant slows no
	// processes (a Node stepped by a test).
	ThrottledBy string `json:"throttled_by"`
	// Tree is TreeKind.
	Tree string `json:"tree"`
}

// Node is a plant behind the kernel's file tree. Step and Close belong to one
// goroutine; View may be called from any.
type Node struct {
	dir         string
	root        *os.Root
	plant       *plant.Plant
	tree        *tree
	throttledBy string

	sinceView time.Duration
	marks     []mark // at every view of the last second, oldest first
	view      atomic.Pointer[View]
	file      *swap // run/plant.json
}

// mark is a reading of the wall energy, for the mean over a second.
type mark struct {
	at     time.Duration
	energy units.Energy
}

// viewEvery is how often (in the plant's time) the view and the slower files are
// written; viewSpan is what wall_1s_w is the mean over.
const (
	viewEvery = 100 * time.Millisecond
	viewSpan  = time.Second
)

// NewNode boots an emulated node in the folder dir: dir/root is its file tree,
// dir/run/plant.json the plant's own view. The machine id is made once per folder
// and kept; the boot id is new at each call, and limits are at their factory
// values. It fails with plant.ErrSpec, or when files cannot be made.
func NewNode(dir string, spec Spec) (*Node, error) {
	p, err := plant.New(spec)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"root", "run", "state", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("emulator: node folder: %w", err)
		}
	}
	root, err := os.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		return nil, fmt.Errorf("emulator: node folder: %w", err)
	}
	t, err := newTree(root, p, time.Now())
	if err == nil {
		err = identify(root)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	n := &Node{dir: dir, root: root, plant: p, tree: t, throttledBy: "nothing", marks: []mark{{}}}
	return n, n.observe()
}

// Dir is the node's folder.
func (n *Node) Dir() string { return n.dir }

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
	errs := []error{n.tree.poll()}
	n.plant.Step(dt, util)
	n.tree.account(dt, n.plant.Utilisation())
	errs = append(errs, n.tree.publish())
	if n.sinceView += dt; n.sinceView >= viewEvery {
		n.sinceView %= viewEvery
		errs = append(errs, n.observe())
	}
	return errors.Join(errs...)
}

// observe makes a new view and writes it and the slower files.
func (n *Node) observe() error {
	v := &View{
		AtUs:  time.Now().UnixMicro(),
		WallW: n.plant.Wall().Watts(), Wall1sW: n.meanWall().Watts(),
		PackageW: n.plant.Package().Watts(), DRAMW: n.plant.DRAM().Watts(),
		FreqHz: n.plant.Freq().Hertz(), Utilisation: n.plant.Utilisation(),
		EnergyJ:     n.plant.WallEnergy().Joules(),
		ThrottledBy: n.throttledBy, Tree: TreeKind,
	}
	n.view.Store(v)
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	errs := []error{n.tree.observe()}
	if n.file == nil {
		n.file, err = newSwap(filepath.Join(n.dir, "run", "plant.json"), text)
	} else {
		err = n.file.put(text)
	}
	return errors.Join(append(errs, err)...)
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

// Close closes the tree's files; they stay where they are.
func (n *Node) Close() error {
	errs := []error{n.tree.close(), n.root.Close()}
	if n.file != nil {
		errs = append(errs, n.file.close())
	}
	return errors.Join(errs...)
}

var machineID = regexp.MustCompile(`^[0-9a-f]{32}\n$`)

// identify gives the node its machine id, unless it has one, and a new boot id.
func identify(root *os.Root) error {
	var id [32]byte
	if _, err := rand.Read(id[:]); err != nil {
		return fmt.Errorf("emulator: identify: %w", err)
	}
	if have, err := root.ReadFile("etc/machine-id"); err != nil || !machineID.Match(have) {
		if err := writeFresh(root, "etc/machine-id", hex.EncodeToString(id[:16])); err != nil {
			return err
		}
	}
	boot := id[16:]
	boot[6], boot[8] = boot[6]&0x0f|0x40, boot[8]&0x3f|0x80 // RFC 9562, version 4
	h := hex.EncodeToString(boot)
	return writeFresh(root, "proc/sys/kernel/random/boot_id", strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"))
}

func writeFresh(root *os.Root, name, value string) error {
	_ = root.Remove(name)
	a, err := create(root, name, value, 0o444)
	if err != nil {
		return err
	}
	return a.close()
}
