package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// CallTimeout bounds every call to the manager, connecting included.
const CallTimeout = 2 * time.Second

// Unit is one unit of systemd, as far as it matters here.
type Unit struct {
	Name        string // "thermald.service"
	Description string // empty where only the cgroup tree could be read
	Active      string // "active", "activating", "reloading"
	Sub         string // "running", "exited"; empty where unknown
}

// Bus is what is asked of systemd. SystemBus is the real one; tests need none.
// Every method ends with its context.
type Bus interface {
	// Units are the loaded units in one of the states (none given: in any) whose name
	// matches one of the patterns ("*" and "?" as in a shell).
	Units(ctx context.Context, states, patterns []string) ([]Unit, error)
	// Group is the path of a service's cgroup below the root of the tree: where it
	// is, or would be if the service ran.
	Group(ctx context.Context, unit string) (string, error)
	// Quota is the slice's CPUQuotaPerSecUSec.
	Quota(ctx context.Context, slice string) (usec uint64, err error)
	// SetQuota sets CPUQuotaPerSecUSec until the next boot.
	SetQuota(ctx context.Context, slice string, usec uint64) error
	// Close gives the connection back.
	Close() error
}

// Options make a Manager.
type Options struct {
	// Root is the machine's file system, for its cgroup tree and /proc. It stays its
	// owner's.
	Root *os.Root
	// Dial connects to systemd, usually SystemBus; nil where Root is not this
	// machine's own: then no bus is ever asked.
	Dial func(context.Context) (Bus, error)
	// Own are name patterns of services that a bounded slice must not hold; nil is
	// OwnServices.
	Own []string
}

// ownServices are the patterns of Headroom's own services: a bound on them would slow
// down what keeps the budget. Workers may be bounded: their tasks are the load.
func ownServices() []string {
	return []string{"*powerd*.service", "*coordinator*.service", "headroom-scheduler*.service"}
}

// Manager asks one machine's systemd. It connects when it is first needed and again
// after a broken connection. Safe for concurrent use, one call at a time; a call
// takes up to CallTimeout, so a control loop leaves it to another goroutine.
type Manager struct {
	root *os.Root
	dial func(context.Context) (Bus, error)
	own  []string

	turn chan struct{} // holds one token: a turn that is waited for ends with its context
	bus  Bus           // nil: not connected; owned by whose turn it is
}

// New makes a Manager; it does nothing yet.
func New(o Options) *Manager {
	own := o.Own
	if own == nil {
		own = ownServices()
	}
	return &Manager{root: o.Root, dial: o.Dial, own: own, turn: make(chan struct{}, 1)}
}

// Close gives the connection back.
func (m *Manager) Close() error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	if m.bus == nil {
		return nil
	}
	err := m.bus.Close()
	m.bus = nil
	return err
}

// ask runs one conversation on the bus. A conversation that fails ends the
// connection, unless systemd itself said no.
func (m *Manager) ask(ctx context.Context, talk func(context.Context, Bus) error) error {
	if m.dial == nil {
		return ErrNoBus
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.turn }()
	if m.bus == nil {
		bus, err := m.dial(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNoBus, err)
		}
		m.bus = bus
	}
	err := talk(ctx, m.bus)
	if err != nil && !saidNo(err) {
		err = errors.Join(err, m.bus.Close())
		m.bus = nil
	}
	return err
}

// ActiveUnits are the units that are active, or becoming so, and match one of the
// names; a name may hold "*" and "?". Without a bus the cgroup tree answers, which
// shows units that have processes (not "active (exited)" ones). The unit of this
// process is left out.
func (m *Manager) ActiveUnits(ctx context.Context, names ...string) ([]Unit, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var found []Unit
	err := m.ask(ctx, func(ctx context.Context, bus Bus) (err error) {
		found, err = bus.Units(ctx, activeStates(), names)
		return err
	})
	if errors.Is(err, ErrNoBus) {
		var errTree error
		if found, errTree = m.unitsInTree(names); errTree != nil {
			return nil, errors.Join(errTree, err)
		}
		err = nil
	}
	self := path.Base(m.ownGroup())
	found = slices.DeleteFunc(found, func(u Unit) bool { return u.Name == self })
	slices.SortFunc(found, func(a, b Unit) int { return cmp.Compare(a.Name, b.Name) })
	return found, err
}

func activeStates() []string { return []string{"active", "activating", "reloading"} }

// matches tells whether a unit's name is one of the names or patterns.
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// sliceGroup is the cgroup path of a slice: "a-b.slice" lies in "a.slice".
func sliceGroup(slice string) string {
	stem, group := strings.TrimSuffix(slice, sliceSuffix), ""
	for i, r := range stem {
		if r == '-' {
			group += "/" + stem[:i] + sliceSuffix
		}
	}
	return group + "/" + slice
}
