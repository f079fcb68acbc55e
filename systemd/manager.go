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

// Bus is the interface to systemd; SystemBus returns the real one. Every method ends with
// its context.
type Bus interface {
	// Units returns the loaded units in one of the states (none given: any) whose name
	// matches one of the patterns ("*" and "?" as in a shell).
	Units(ctx context.Context, states, patterns []string) ([]Unit, error)
	// Group returns the path of a service's cgroup below the root of the tree, whether
	// the service runs or not.
	Group(ctx context.Context, unit string) (string, error)
	// SetQuota
	// Quota returns the slice's CPUQuotaPerSecUSec.
	// SetQuota
	Quota(ctx context.Context, slice string) (usec uint64, err error)
	// SetQuota sets CPUQuotaPerSecUSec until the next boot.
	SetQuota(ctx context.Context, slice string, usec uint64) error
	// Close closes the connection.
	Close() error
}

// Options configure a Manager.
type Options struct {
	// Root is the machine's file system, for its cgroup tree and /proc. The caller closes
	// it.
	Root *os.Root
	// Dial connects to systemd, usually SystemBus; nil if Root is not this machine's
	// own: then no bus is used.
	Dial func(context.Context) (Bus, error)
	// Own lists name patterns of services that a limited slice must not contain; nil is
	// OwnServices.
	Own []string
}

// ownServices returns the patterns of Headroom's services, which must not be slowed down.
// Workers may be limited: their tasks are the load.
func ownServices() []string {
	return []string{"*powerd*.service", "*coordinator*.service", "headroom-scheduler*.service"}
}

// Manager calls the systemd of one machine. It connects on first use and again after a
// broken connection. It is safe for concurrent use, one call at a time; a call takes up to
// CallTimeout, so a control loop must use another goroutine.
type Manager struct {
	root *os.Root
	dial func(context.Context) (Bus, error)
	own  []string

	turn chan struct{} // holds one token: waiting for it ends with the context
	bus  Bus           // nil: not connected; owned by whose turn it is
}

// New returns a Manager; it does not connect.
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

// ask runs one exchange on the bus. A failure closes the connection, unless systemd itself
// returned the error.
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

// ActiveUnits returns the active and activating units that match one of the names, which
// may contain "*" and "?". Without a bus it uses the cgroup tree, which shows units with
// processes (not "active (exited)" ones). The unit of this process is excluded.
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

// matches reports whether a unit's name matches one of the names or patterns.
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// sliceGroup returns the cgroup path of a slice: "a-b.slice" is in "a.slice".
func sliceGroup(slice string) string {
	stem, group := strings.TrimSuffix(slice, sliceSuffix), ""
	for i, r := range stem {
		if r == '-' {
			group += "/" + stem[:i] + sliceSuffix
		}
	}
	return group + "/" + slice
}
