package command

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"headroom/agent"
	"headroom/agent/machine"
	"headroom/internal/cli"
	"headroom/internal/each"
	"headroom/rapl"
	"headroom/units"
)

// own reads a machine directly, for commands while no powerd runs. It writes nothing.
type own struct {
	root   *os.Root
	tree   *rapl.Tree // nil: the machine has no RAPL zone
	bare   error      // why tree is nil
	meters []*rapl.Meter
	powers []*units.Power // of the last look, nil where unknown
	still  []bool         // counters that did not advance in the last look
	noted  bool           // that was said
}

// openOwn opens a machine. A machine without RAPL is no error: its figures are unknown.
func openOwn(path string) (*own, error) {
	root, err := machine.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	tree, err := rapl.Open(root)
	if errors.Is(err, rapl.ErrNoTree) || errors.Is(err, rapl.ErrNoZone) {
		return &own{root: root, bare: err}, nil
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	o := &own{root: root, tree: tree}
	for _, z := range tree.Zones() {
		o.meters = append(o.meters, rapl.NewMeter(z))
	}
	o.powers, o.still = make([]*units.Power, len(o.meters)), make([]bool, len(o.meters))
	return o, nil
}

// zones returns the zones of the machine, none without RAPL.
func (o *own) zones() []*rapl.Zone {
	if o.tree == nil {
		return nil
	}
	return o.tree.Zones()
}

// names returns the names of the zones.
func (o *own) names() []string {
	return each.Of(o.zones(), func(z *rapl.Zone) string { return z.Label })
}

// look reads every counter; powers then holds the means since the look before. A counter that
// stands still shows no power: whatever runs draws something, so 0 W would be made up.
func (o *own) look() {
	now := agent.BootTime()
	for i, m := range o.meters {
		r, err := m.Look(now)
		o.powers[i], o.still[i] = nil, err == nil && r.Known && r.Energy == 0
		if o.still[i] {
			continue
		}
		if p, known := r.Power(); err == nil && known {
			o.powers[i] = &p
		}
	}
}

// total returns the power of all independent zones of one kind, nil if one is unknown.
func (o *own) total(k rapl.Kind) *units.Power {
	var sum units.Power
	found := false
	for i, z := range o.zones() {
		if !o.counts(z, k) {
			continue
		}
		if o.powers[i] == nil {
			return nil
		}
		sum, found = sum+*o.powers[i], true
	}
	if !found {
		return nil
	}
	return &sum
}

// counts reports whether a zone is an independent one of its kind.
func (o *own) counts(z *rapl.Zone, k rapl.Kind) bool {
	return z.Kind == k && slices.Contains(o.tree.OfKind(k), z)
}

// stillWords are for a counter that does not advance, as powerd's own status has them.
const stillWords = "counter does not advance"

// noteStill says once which counters do not advance.
func (o *own) noteStill(w io.Writer) {
	if o == nil || o.noted || !slices.Contains(o.still, true) {
		return
	}
	o.noted = true
	var names []string
	for i, z := range o.zones() {
		if o.still[i] {
			names = append(names, z.Label)
		}
	}
	cli.Notef(w, "note: %s: %s, power is unknown (an emulator, a virtual machine, or energy filtering)", strings.Join(names, ", "), stillWords)
}

func (o *own) close() error {
	var err error
	if o.tree != nil {
		err = o.tree.Close()
	}
	return errors.Join(err, o.root.Close())
}

// lookMin is the shortest time between two looks: counters advance once a millisecond,
// and energy at a high rate leaks secrets of other processes (CVE-2020-8694).
const lookMin = 50 * time.Millisecond

// awaitLook waits between two looks; it returns an error if the command was interrupted.
func awaitLook(ctx context.Context, d time.Duration) error {
	if d < lookMin {
		return cli.Usage("--interval %v: must be at least %v", d, lookMin)
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return nil
	}
}
