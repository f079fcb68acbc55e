package emulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"

	"headroom/internal/testkit/emulated"
	"headroom/lab/emulator/bmc"
	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/treefs"
	"headroom/units"
)

// ServeTests serves package emulated's calls on a unix socket, whose path it writes as one line,
// until in ends. Every connection has at most one machine and one BMC, which end with it.
func ServeTests(in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "headroom-machine-")
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", filepath.Join(dir, "s"))
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = l.Close()
	}()
	var open sync.WaitGroup // whose client is gone with its end of in
	defer open.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		open.Go(func() { serveTest(c) })
	}
}

// serveTest serves one connection to its end.
func serveTest(c net.Conn) {
	m := &testMachine{}
	b := &testBMC{on: m}
	s := rpc.NewServer()
	err := errors.Join(s.RegisterName("Machine", m), s.RegisterName("BMC", b))
	if err == nil {
		s.ServeConn(c)
	}
	_ = b.Close(struct{}{}, nil)
	_ = m.Close(struct{}{}, nil)
}

// testMachine is the machine of a connection.
type testMachine struct{ node *Node }

// Start boots it.
func (m *testMachine) Start(o emulated.Options, s *emulated.Started) error {
	shape, err := kernel.ShapeOf(cmp.Or(o.Shape, kernel.Shapes()[0].Name))
	if err != nil {
		return err
	}
	shape.Driver = cmp.Or(o.Driver, shape.Driver)
	m.node, err = newNode(o.Dir, shape, o.Mount)
	if errors.Is(err, treefs.ErrNoFUSE) {
		s.NoFUSE = err.Error()
		return nil
	}
	p := shape.Spec
	s.Spec = emulated.Spec{
		Rated: p.Rated(), Floor: p.Floor(), FailSafe: p.FailSafe, Other: p.Other, Efficiency: p.WorstEfficiency(),
		Memory: units.Power(max(1, p.Packages)) * (p.DRAMIdle + p.DRAMDynamic), Default: p == DefaultSpec(),
	}
	return err
}

// Step lets time pass.
func (m *testMachine) Step(r emulated.StepRequest, s *emulated.Stepped) error {
	err := m.node.Step(r.Time, r.Utilisation)
	s.Wall = m.node.Wall()
	if s.Gone = errors.Is(err, os.ErrNotExist); s.Gone {
		return nil
	}
	return err
}

// Fault injects a fault of the tree.
func (m *testMachine) Fault(name string, _ *struct{}) error {
	f, known := map[string]kernel.Faults{"no-turbo": {NoTurbo: true}, "unbound": {Unbound: true}}[name]
	if !known {
		return fmt.Errorf("emulator: unknown fault %q", name)
	}
	m.node.SetFaults(f)
	return nil
}

// Close ends it, once.
func (m *testMachine) Close(struct{}, *struct{}) error {
	node := m.node
	if m.node = nil; node == nil {
		return nil
	}
	return node.Close()
}

// testBMC is the BMC of a connection.
type testBMC struct {
	on  *testMachine
	bmc *bmc.BMC
}

// Start starts it and returns its address.
func (b *testBMC) Start(o emulated.BMCOptions, address *string) (err error) {
	watts := func() units.Power { return o.Watts }
	if node := b.on.node; node != nil {
		watts = node.Wall
	}
	b.bmc, err = bmc.Start(bmc.Config{
		Listen: "127.0.0.1:0", User: o.User, Password: o.Password, CipherSuites: o.CipherSuites, Update: o.Update, Action: o.Action, Watts: watts,
	})
	if err == nil {
		*address = b.bmc.Addr()
	}
	return err
}

// Fault sets its faults.
func (b *testBMC) Fault(text string, _ *struct{}) error {
	f, err := bmc.ParseFault(text)
	if err == nil {
		b.bmc.SetFault(f)
	}
	return err
}

// Power switches its machine on or off.
func (b *testBMC) Power(on bool, _ *struct{}) error { return b.bmc.SetPower(on) }

// Close ends it, once.
func (b *testBMC) Close(struct{}, *struct{}) error {
	if b.bmc != nil {
		b.bmc.Close()
	}
	b.bmc = nil
	return nil
}

// Limit is its limit.
func (b *testBMC) Limit(_ struct{}, l *emulated.Limit) error {
	l.Power, l.Active = b.bmc.Limit()
	l.Action = b.bmc.Action()
	return nil
}
