package rapl

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"headroom/rapl/sysfs"
)

// Changes are the zones that Refresh found changed.
type Changes struct {
	Gone  []*Zone // were there and are not any more
	Back  []*Zone // were gone, replaced or denied, and are open again
	Added []*Zone // were never there before
}

// Refresh looks again which zones there are: a package that goes offline takes
// its zones away, and held descriptors of theirs never read again. A zone that
// returns is opened again in place, so that its Zone, Meters and Limiter go on;
// a Meter drops the first difference. A zone that returns under another name is
// another zone. The error says what could not be opened; the rest is done.
func (t *Tree) Refresh() (Changes, error) {
	var c Changes
	if t.root == nil {
		return c, nil
	}
	dirs, err := find(t.root)
	var errs []error
	if dirs != nil || !errors.Is(err, ErrNoTree) && !errors.Is(err, ErrNoZone) {
		errs = append(errs, err)
	}
	for _, z := range t.zones {
		i := slices.IndexFunc(dirs, func(d Dir) bool { return d.Path == z.Dir && d.Control == z.Control })
		if i < 0 || !z.sameName(t.open) {
			if !z.gone {
				z.gone = true
				c.Gone = append(c.Gone, z)
			}
			continue
		}
		d := dirs[i]
		dirs = slices.Delete(dirs, i, i+1)
		if !z.gone && os.SameFile(z.info, d.info) {
			if z.allow() {
				c.Back = append(c.Back, z)
			}
			continue
		}
		if err := z.reopen(d.info); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Back = append(c.Back, z)
	}
	for _, d := range dirs {
		z, err := openZone(t.open, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("rapl: %s: %w", d.Path, err))
			continue
		}
		t.zones = append(t.zones, z)
		c.Added = append(c.Added, z)
	}
	if len(c.Added) > 0 {
		t.link()
	}
	return c, errors.Join(errs...)
}

// allow opens a counter that could not be opened before, once its permissions
// were put right.
func (z *Zone) allow() bool {
	if z.energy != nil {
		return false
	}
	if z.energy, z.energyErr = sysfs.NewAttr(path.Join(z.Dir, "energy_uj"), z.open); z.energyErr != nil {
		z.energy = nil
		return false
	}
	z.generation++
	return true
}

// sameName reports whether what stands in the zone's directory is still that zone: a
// number is given to whichever package registers first.
func (z *Zone) sameName(open sysfs.Opener) bool {
	name, err := open.ReadText(path.Join(z.Dir, "name"))
	return err == nil && name == z.Name
}
