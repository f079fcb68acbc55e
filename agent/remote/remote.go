// Package remote writes controls that only another program can write: CPU bandwidth of
// slices (systemd) and the limit of the BMC. It also detects rivals, which are programs that
// write the same controls.
//
// These calls may take seconds or hang, so they run in goroutines of their own. The loop
// submits values, of which only the newest counts, and receives reports; neither blocks.
// Nothing is written before the loop asks for it, and every original value is recorded first
// (package originals).
package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/ipmi"
	"headroom/systemd"
	"headroom/units"
)

const (
	// reportsMost is how many reports wait for the owner.
	reportsMost = 64
	// lookEvery is the time between two looks at what stands there when nothing is wanted.
	lookEvery = 5 * time.Second
	// rivalsEvery is the time between two searches for other writers.
	rivalsEvery = time.Minute
	// PutBackWait bounds one control's way back, when the originals go back.
	PutBackWait = 3 * time.Second
)

// Names of controls that are no files: a prefix before a slice's name, and the BMC's limit.
const (
	SlicePrefix = "systemd:"
	BMCPath     = "bmc:limit"
)

// Report is what one of those goroutines sends to the owner.
type Report struct {
	Slices          []SliceReport // not nil: the slices as they stand
	Rivals          []systemd.Unit
	LookedForRivals bool // rivals were looked for
	Limit           *LimitReport
	Err             error
}

// SliceReport is one slice that may be bounded.
type SliceReport struct {
	Name  string
	State systemd.SliceState
	Wrote bool // this is how a write came out
	Err   error
}

// LimitReport is the BMC's own limit.
type LimitReport struct {
	Limit ipmi.Limit
	Err   error
	Wrote bool // this is how a write came out
}

// newest holds the newest of what was put into it.
type newest[T any] chan T

// put replaces what is in there. Only the owner may call it, so there is room.
//
//headroom:control
func (m newest[T]) put(v T) {
	select {
	case <-m:
	default:
	}
	select {
	case m <- v:
	default:
	}
}

// Remote is the owner's side of the goroutines.
type Remote struct {
	manager *systemd.Manager
	meter   *ipmi.Meter // nil: no BMC is asked
	Reports chan Report
	bounds  newest[map[string]systemd.Bandwidth]
	limit   newest[units.Power]
	started bool
	cancel  context.CancelFunc
	ended   chan struct{} // closed once no goroutine of Remote writes any more
}

// New returns a Remote that asks nobody yet.
func New() *Remote {
	return &Remote{
		Reports: make(chan Report, reportsMost), ended: make(chan struct{}), cancel: func() {},
		bounds: make(newest[map[string]systemd.Bandwidth], 1), limit: make(newest[units.Power], 1),
	}
}

// Open names the other program; it is not called yet.
func (f *Remote) Open(root *os.Root, dial func(context.Context) (systemd.Bus, error)) {
	f.manager = systemd.New(systemd.Options{Root: root, Dial: dial})
}

// Start starts watching slices, rivals and the BMC's limit. It is called after the
// first safe cap.
func (f *Remote) Start(ctx context.Context, cfg *config.Config, meter *ipmi.Meter, servers *sync.WaitGroup) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.meter, f.started = meter, true
	var running sync.WaitGroup
	running.Go(func() { f.keepRivals(ctx) })
	if names := cfg.AllowedSlices(); len(names) > 0 {
		running.Go(func() { f.keepSlices(ctx, names) })
	}
	if meter != nil && cfg.KeepsLimit() {
		running.Go(func() { f.keepLimit(ctx, meter) })
	}
	servers.Go(func() {
		running.Wait()
		close(f.ended)
	})
}

// Close closes the connection; the goroutines that used it have ended with the servers given to Start.
func (f *Remote) Close() error {
	if f.manager == nil {
		return nil
	}
	return f.manager.Close()
}

// Dialer is the way to this machine's systemd; nil where root is another machine's.
func Dialer(cfg *config.Config) func(context.Context) (systemd.Bus, error) {
	if cfg.Root != "/" {
		return nil
	}
	return systemd.SystemBus
}

// send sends a report to the owner.
func (f *Remote) send(ctx context.Context, r Report) {
	select {
	case f.Reports <- r:
	case <-ctx.Done():
	}
}

// keepSlices finds the slices, then bounds them as wanted and looks at them.
func (f *Remote) keepSlices(ctx context.Context, names []string) {
	var all []*systemd.Slice
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		var want map[string]systemd.Bandwidth
		select {
		case <-ctx.Done():
			return
		case want = <-f.bounds:
		case <-look.C:
		}
		var err error
		if len(all) < len(names) {
			all, err = f.manager.Slices(ctx, names)
		}
		f.send(ctx, Report{Slices: f.visit(ctx, all, want), Err: err})
		look.Reset(lookEvery)
	}
}

// visit bounds the slices that are wanted and reads the others.
func (f *Remote) visit(ctx context.Context, all []*systemd.Slice, want map[string]systemd.Bandwidth) []SliceReport {
	found := make([]SliceReport, 0, len(all))
	for _, s := range all {
		r := SliceReport{Name: s.Name()}
		if b, ok := want[s.Name()]; ok {
			r.State, r.Err = s.Set(ctx, b)
			r.Wrote = true
		} else {
			r.State, r.Err = s.Read(ctx)
		}
		found = append(found, r)
	}
	return found
}

// keepRivals looks for programs that write the same controls.
func (f *Remote) keepRivals(ctx context.Context) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		found, err := f.manager.ActiveUnits(ctx, systemd.RivalUnits()...)
		f.send(ctx, Report{Rivals: found, LookedForRivals: true, Err: err})
		look.Reset(rivalsEvery)
	}
}

// keepLimit writes the BMC's limit as wanted and looks at it.
func (f *Remote) keepLimit(ctx context.Context, meter *ipmi.Meter) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		var r LimitReport
		select {
		case <-ctx.Done():
			return
		case want := <-f.limit:
			r.Limit, r.Err = meter.SetLimit(ctx, want)
			r.Wrote = true
		case <-look.C:
			r.Limit, r.Err = meter.Limit(ctx)
		}
		f.send(ctx, Report{Limit: &r})
		look.Reset(lookEvery)
	}
}

// SetSlices asks for the bandwidth of slices, by name.
//
//headroom:control
func (f *Remote) SetSlices(want map[string]systemd.Bandwidth) { f.bounds.put(want) }

// SetLimit asks for a limit of the BMC.
//
//headroom:control
func (f *Remote) SetLimit(want units.Power) { f.limit.put(want) }

// Stop ends every goroutine that may write, and waits for that within bounds.
func (f *Remote) Stop() {
	if !f.started {
		return
	}
	f.cancel()
	late := time.NewTimer(PutBackWait)
	defer late.Stop()
	select {
	case <-f.ended:
	case <-late.C:
	}
}

// PutBack puts back what is no file. There is none before the loop runs.
func (f *Remote) PutBack() originals.Remote {
	return func(c originals.Saved, wrote originals.Value, ever bool) (string, bool, error) {
		was := c.Kind.Words(c.Found())
		if !ever {
			return was + " (never written)", false, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), PutBackWait)
		defer cancel()
		var err error
		switch {
		case !f.started:
			err = errors.New("restored later: the other program is not called before the first safe cap")
		case c.Kind == originals.Bandwidth:
			slice := f.manager.Adopt(strings.TrimPrefix(c.Path, SlicePrefix))
			_, err = slice.PutBack(ctx, systemd.Bandwidth(c.Original), systemd.Bandwidth(wrote.Number))
		default:
			err = f.putBackLimit(ctx, c.Text, wrote.Text)
		}
		if errors.Is(err, systemd.ErrChanged) || errors.Is(err, ipmi.ErrLimitChanged) {
			return fmt.Sprintf("%v; kept (original %s)", err, was), true, nil
		}
		return was, false, err
	}
}

func (f *Remote) putBackLimit(ctx context.Context, found, wrote string) error {
	was, errWas := originals.DecodeLimit(found)
	last, errLast := originals.DecodeLimit(wrote)
	if err := errors.Join(errWas, errLast); err != nil {
		return err
	}
	if f.meter == nil {
		return ipmi.ErrAbsent
	}
	_, err := f.meter.RestoreLimit(ctx, was, last)
	return err
}
