// Package emulated gives tests of the product an emulated machine or BMC.
//
// The one idea: the product imports nothing of the lab, not even in tests. The physics run in
// headroom/lab/cmd/machine, a child process that serves net/rpc on a unix socket. A test binary
// starts it once; it ends when the test binary does. Every machine and every BMC has a
// connection of its own and ends with it.
//
// Where there is no lab (GOWORK=off, or a clone without lab/), the test does not run and reports
// that. It never appears in a program: only _test.go files import it, and the lab that serves it.
package emulated

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// Options describes a machine.
type Options struct {
	// Dir is the node's folder: Dir/root is its file tree.
	Dir string
	// Shape is the machine's kind by its name in headroom/lab/emulator/kernel; "" is the default.
	Shape string
	// Driver is its cpufreq driver, "" for the shape's own.
	Driver string
	// Mount mounts the tree by FUSE, with the kernel's error semantics.
	Mount bool
}

// Spec is what a machine of some shape draws.
type Spec struct {
	Rated, Floor, FailSafe units.Power
	// Other is the power of what no counter shows, behind the supply.
	Other units.Power
	// Memory is the highest power of the memory.
	Memory units.Power
	// Efficiency is the supply's lowest efficiency, 0 to 1.
	Efficiency float64
	// Default reports whether this is the default machine.
	Default bool
}

// Started is the reply to Machine.Start.
type Started struct {
	Spec Spec
	// NoFUSE is the reason why a tree cannot be mounted here; "" where it was.
	NoFUSE string
}

// StepRequest lets Time pass on the machine under a utilisation of 0 to 1.
type StepRequest struct {
	Time        time.Duration
	Utilisation float64
}

// Stepped is the reply to Machine.Step.
type Stepped struct {
	// Wall is the mean power at the wall over the last second.
	Wall units.Power
	// Gone reports whether a file of the tree is missing: the machine goes on without it.
	Gone bool
}

// BMCOptions describes a BMC with the account User and Password on a port of loopback.
type BMCOptions struct {
	User, Password string
	CipherSuites   []byte
	Update         time.Duration
	// Action is the exception action of a limit until it is set; nil for power off.
	Action *byte
	// Watts is the power that it measures; on a machine, that machine's.
	Watts units.Power
}

// Limit is the limit of a BMC.
type Limit struct {
	Power  units.Power
	Active bool
	Action byte
}

// program is the one child of this test binary.
var program = sync.OnceValues(startProgram)

// child is the lab's program, which ends when its input is closed.
type child struct {
	address string
	input   io.Closer
}

// startProgram starts the lab's program, or returns errNoLab.
func startProgram() (*child, error) {
	work, err := exec.Command("go", "env", "GOWORK").Output() //nolint:noctx // it ends by itself
	if at := strings.TrimSpace(string(work)); err != nil || at == "" || at == "off" {
		return nil, errNoLab
	} else if _, err := os.Stat(filepath.Join(filepath.Dir(at), "lab/go.mod")); err != nil {
		return nil, errNoLab
	}
	c := exec.Command("go", "run", "headroom/lab/cmd/machine") //nolint:noctx // it ends with its input
	c.Stderr = os.Stderr
	input, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("headroom/lab/cmd/machine ended before it served: %w", err)
	}
	return &child{strings.TrimSpace(line), input}, nil
}

// errNoLab means that the tests run without the lab.
var errNoLab = errors.New("no workspace with lab/")

// dial is a connection of its own to the child.
func dial(tb testing.TB) *rpc.Client {
	tb.Helper()
	started, err := program()
	if errors.Is(err, errNoLab) {
		testkit.NotRun(tb, "needs the emulated machines of the lab: "+err.Error())
	}
	testkit.Check(tb, err)
	return testkit.Need(rpc.Dial("unix", started.address))(tb)
}

// call makes a call without a reply.
func call(c *rpc.Client, method string, args any) error {
	if err := c.Call(method, args, &struct{}{}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// Machine is an emulated machine. Step and Close belong to one goroutine.
type Machine struct {
	Spec   Spec
	client *rpc.Client
	dir    string
	mu     sync.Mutex
	wall   units.Power
}

// Start boots a machine, which the test's cleanup ends. Where a mount was wanted and cannot be made,
// the test does not run.
func Start(tb testing.TB, o Options) *Machine {
	tb.Helper()
	m := &Machine{client: dial(tb), dir: o.Dir}
	var s Started
	testkit.Check(tb, m.client.Call("Machine.Start", o, &s))
	tb.Cleanup(func() {
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	if s.NoFUSE != "" {
		testkit.NotRun(tb, s.NoFUSE)
	}
	m.Spec = s.Spec
	return m
}

// Root is the folder of its file tree.
func (m *Machine) Root() string { return filepath.Join(m.dir, "root") }

// Step lets d pass under a utilisation of 0 to 1. It returns an os.ErrNotExist where a file of the
// tree is gone; the machine goes on all the same.
func (m *Machine) Step(d time.Duration, utilisation float64) error {
	var s Stepped
	if err := m.client.Call("Machine.Step", StepRequest{d, utilisation}, &s); err != nil {
		return fmt.Errorf("step: %w", err)
	}
	m.mu.Lock()
	m.wall = s.Wall
	m.mu.Unlock()
	if s.Gone {
		return os.ErrNotExist
	}
	return nil
}

// Wall is the mean power at the wall over the last second, as of the last step.
func (m *Machine) Wall() units.Power {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

// Fault injects a fault of the tree.
func (m *Machine) Fault(name string) error { return call(m.client, "Machine.Fault", name) }

// Close ends the machine, once; its BMC ends with it.
func (m *Machine) Close() error {
	err := call(m.client, "Machine.Close", struct{}{})
	if errors.Is(err, rpc.ErrShutdown) {
		return nil
	}
	return errors.Join(err, m.client.Close())
}

// BMC is an emulated BMC.
type BMC struct {
	tb      testing.TB
	client  *rpc.Client
	address string
}

// StartBMC starts a BMC that measures o.Watts; the test's cleanup ends it.
func StartBMC(tb testing.TB, o BMCOptions) *BMC {
	tb.Helper()
	b := startBMC(tb, dial(tb), o)
	tb.Cleanup(b.Close)
	return b
}

// StartBMC starts a BMC that measures this machine.
func (m *Machine) StartBMC(tb testing.TB, o BMCOptions) *BMC {
	tb.Helper()
	return startBMC(tb, m.client, o)
}

func startBMC(tb testing.TB, c *rpc.Client, o BMCOptions) *BMC {
	tb.Helper()
	b := &BMC{tb: tb, client: c}
	testkit.Check(tb, c.Call("BMC.Start", o, &b.address))
	return b
}

// Addr is its address, host:port of UDP.
func (b *BMC) Addr() string { return b.address }

// SetFault sets its fault, by the names of headroom/lab/emulator/bmc: "hang", "slow=2s".
func (b *BMC) SetFault(text string) {
	b.tb.Helper()
	testkit.Check(b.tb, call(b.client, "BMC.Fault", text))
}

// SetPower switches its machine on or off.
func (b *BMC) SetPower(on bool) error { return call(b.client, "BMC.Power", on) }

// Limit is its limit, and whether that is active.
func (b *BMC) Limit() (units.Power, bool) {
	l := b.limit()
	return l.Power, l.Active
}

// Action is the exception action of its limit.
func (b *BMC) Action() byte { return b.limit().Action }

func (b *BMC) limit() (l Limit) {
	b.tb.Helper()
	testkit.Check(b.tb, b.client.Call("BMC.Limit", struct{}{}, &l))
	return l
}

// Close ends a BMC without a machine.
func (b *BMC) Close() {
	_ = call(b.client, "BMC.Close", struct{}{}) // it may be closed already
	_ = b.client.Close()
}
