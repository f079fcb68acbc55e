package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

const (
	quotaSetting = "CPUQuotaPerSecUSec"
	// busErrors begins the names of the bus's own refusals, spawnErrors those of a bus
	// that tried to start systemd because no client of that name was connected.
	busErrors   = "org.freedesktop.DBus.Error."
	spawnErrors = busErrors + "Spawn."
)

// SystemBus connects to systemd by the system bus (DBUS_SYSTEM_BUS_ADDRESS or its
// usual place), or, for root on a machine without one, by systemd's own socket. ctx
// bounds the connecting alone. Changing units takes root or a polkit rule.
func SystemBus(ctx context.Context) (Bus, error) {
	bus, err := connect(ctx, dbus.NewSystemConnectionContext)
	if err == nil {
		return bus, nil
	}
	if os.Geteuid() != 0 {
		return nil, err
	}
	own, errOwn := connect(ctx, dbus.NewSystemdConnectionContext)
	if errOwn != nil {
		return nil, errors.Join(err, errOwn)
	}
	return own, nil
}

// connect makes a connection that outlives ctx. The library ends a connection with
// the context that it was made with, and makes some calls while connecting that
// nothing else bounds. So it gets its own context, which ends with ctx only
// until the connection is established.
func connect(ctx context.Context, dial func(context.Context) (*dbus.Conn, error)) (*wire, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stands := context.AfterFunc(ctx, end)
	conn, err := dial(life)
	if inTime := stands(); err == nil && inTime {
		return &wire{conn: conn, end: end}, nil
	}
	if err == nil {
		conn.Close()
	}
	end()
	return nil, errors.Join(ctx.Err(), err)
}

// wire is systemd behind a D-Bus connection.
type wire struct {
	conn *dbus.Conn
	end  context.CancelFunc
}

// Units returns loaded units by state and name.
func (w *wire) Units(ctx context.Context, states, patterns []string) ([]Unit, error) {
	list, err := w.conn.ListUnitsByPatternsContext(ctx, states, patterns)
	if err != nil {
		return nil, denied(err)
	}
	units := make([]Unit, len(list))
	for i, u := range list {
		units[i] = Unit{Name: u.Name, Description: u.Description, Active: u.ActiveState, Sub: u.SubState}
	}
	return units, nil
}

// Group returns the cgroup in the unit's Slice, whether the unit is active or not.
func (w *wire) Group(ctx context.Context, unit string) (string, error) {
	slice, err := property[string](ctx, w, unit, "Slice")
	if err != nil || slice == "" || slice == rootSlice {
		return "/" + unit, err
	}
	return sliceGroup(slice) + "/" + unit, nil
}

// Quota is the slice's CPUQuotaPerSecUSec.
func (w *wire) Quota(ctx context.Context, slice string) (uint64, error) {
	return property[uint64](ctx, w, slice, quotaSetting)
}

// SetQuota sets it until the next boot.
func (w *wire) SetQuota(ctx context.Context, slice string, usec uint64) error {
	const runtimeOnly = true
	return denied(w.conn.SetUnitPropertiesContext(ctx, slice, runtimeOnly, dbus.Property{Name: quotaSetting, Value: godbus.MakeVariant(usec)}))
}

// Close closes the connection; it never fails.
func (w *wire) Close() error {
	w.conn.Close()
	w.end()
	return nil
}

// property reads one property of a unit's own kind: Service, Slice or Scope. systemd
// loads the unit if it was not.
func property[T any](ctx context.Context, w *wire, unit, name string) (T, error) {
	var zero T
	p, err := w.conn.GetUnitTypePropertyContext(ctx, unit, kind(unit), name)
	if err != nil {
		return zero, denied(err)
	}
	v, ok := p.Value.Value().(T)
	if !ok {
		return zero, fmt.Errorf("systemd: %s of %s: %w", name, unit, ErrMalformed)
	}
	return v, nil
}

// kind returns a unit's kind as in systemd's interfaces: "Slice" for "batch.slice".
func kind(unit string) string {
	suffix := unit[strings.LastIndexByte(unit, '.')+1:]
	if suffix == "" {
		return "Unit"
	}
	return strings.ToUpper(suffix[:1]) + suffix[1:]
}

// denied translates permission errors, and errors of a bus that systemd has not joined, as
// early in a boot.
func denied(err error) error {
	e, ok := errors.AsType[godbus.Error](err)
	if !ok {
		return err
	}
	if strings.HasPrefix(e.Name, spawnErrors) {
		return fmt.Errorf("%w: %w", ErrNoBus, err)
	}
	switch strings.TrimPrefix(e.Name, busErrors) {
	case "AccessDenied", "InteractiveAuthorizationRequired", "AuthFailed":
		return fmt.Errorf("%w: %w", ErrDenied, err)
	case "NameHasNoOwner", "ServiceUnknown":
		return fmt.Errorf("%w: %w", ErrNoBus, err)
	}
	return err
}

// saidNo reports whether systemd itself returned the error: then the connection is good.
func saidNo(err error) bool {
	_, ok := errors.AsType[godbus.Error](err)
	return ok
}
