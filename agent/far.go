package agent

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

// What is reached through another program (systemd's bus, the BMC) may take
// seconds. It is done by goroutines of its own; the owner sends what it wants,
// where only the newest counts, and takes reports.

const (
	// farQueue is how many reports wait for the owner.
	farQueue = 64
	// farEvery is the time between two looks at what stands there when nothing is wanted.
	farEvery = 5 * time.Second
	// farWait bounds one control's way back, when the originals go back.
	farWait = 3 * time.Second
	// slicePrefix and bmcPath name controls that are no files.
	slicePrefix = "systemd:"
	bmcPath     = "bmc:limit"
)

// farReport is what one of those goroutines tells the owner.
type farReport struct {
	slices []sliceReport // not nil: the slices as they stand
	rivals []systemd.Unit
	looked bool // rivals were looked for
	limit  *limitReport
	err    error
}

// sliceReport is one slice that may be bounded.
type sliceReport struct {
	name  string
	state systemd.SliceState
	wrote bool // this is how a write came out
	err   error
}

// limitReport is the BMC's own limit.
type limitReport struct {
	limit ipmi.Limit
	err   error
	wrote bool // this is how a write came out
}

// mailbox holds the newest of what was put into it.
type mailbox[T any] chan T

func newMailbox[T any]() mailbox[T] { return make(mailbox[T], 1) }

// put replaces what is in there. Only the owner may call it.
func (m mailbox[T]) put(v T) {
	select {
	case <-m:
	default:
	}
	m <- v
}

// far is the owner's side of those goroutines.
type far struct {
	manager *systemd.Manager
	meter   *ipmi.Meter // nil: no BMC is asked
	reports chan farReport
	bounds  mailbox[map[string]systemd.Bandwidth]
	limit   mailbox[units.Power]
	started bool
	cancel  context.CancelFunc
	ended   chan struct{} // closed once no goroutine of far writes any more
}

func newFar() *far {
	return &far{
		reports: make(chan farReport, farQueue), ended: make(chan struct{}), cancel: func() {},
		bounds: newMailbox[map[string]systemd.Bandwidth](), limit: newMailbox[units.Power](),
	}
}

// open names the other program; it is not asked yet.
func (f *far) open(root *os.Root, dial func(context.Context) (systemd.Bus, error)) {
	f.manager = systemd.New(systemd.Options{Root: root, Dial: dial})
}

// start begins to look at slices, rivals and the BMC's limit. It is called after the
// first safe cap.
func (f *far) start(ctx context.Context, cfg *config.Config, meter *ipmi.Meter, servers *sync.WaitGroup) {
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

func (f *far) close() error {
	if f.manager == nil {
		return nil
	}
	return f.manager.Close()
}

// dialer is the way to this machine's systemd; nil where root is another machine's.
func dialer(cfg *config.Config) func(context.Context) (systemd.Bus, error) {
	if cfg.Root != "/" {
		return nil
	}
	return systemd.SystemBus
}

// report hands a report to the owner.
func (f *far) report(ctx context.Context, r farReport) {
	select {
	case f.reports <- r:
	case <-ctx.Done():
	}
}

// keepSlices finds the slices, then bounds them as wanted and looks at them.
func (f *far) keepSlices(ctx context.Context, names []string) {
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
		f.report(ctx, farReport{slices: f.visit(ctx, all, want), err: err})
		look.Reset(farEvery)
	}
}

// visit bounds the slices that are wanted and reads the others.
func (f *far) visit(ctx context.Context, all []*systemd.Slice, want map[string]systemd.Bandwidth) []sliceReport {
	found := make([]sliceReport, 0, len(all))
	for _, s := range all {
		r := sliceReport{name: s.Name()}
		if b, ok := want[s.Name()]; ok {
			r.state, r.err = s.Set(ctx, b)
			r.wrote = true
		} else {
			r.state, r.err = s.Read(ctx)
		}
		found = append(found, r)
	}
	return found
}

// keepRivals looks for programs that write the same controls.
func (f *far) keepRivals(ctx context.Context) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		found, err := f.manager.ActiveUnits(ctx, systemd.RivalUnits()...)
		f.report(ctx, farReport{rivals: found, looked: true, err: err})
		look.Reset(rivalsEvery)
	}
}

// keepLimit writes the BMC's limit as wanted and looks at it.
func (f *far) keepLimit(ctx context.Context, meter *ipmi.Meter) {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		var r limitReport
		select {
		case <-ctx.Done():
			return
		case want := <-f.limit:
			r.limit, r.err = meter.SetLimit(ctx, want)
			r.wrote = true
		case <-look.C:
			r.limit, r.err = meter.Limit(ctx)
		}
		f.report(ctx, farReport{limit: &r})
		look.Reset(farEvery)
	}
}

// stop ends every goroutine that may write, and waits for that within bounds.
func (f *far) stop() {
	if !f.started {
		return
	}
	f.cancel()
	late := time.NewTimer(farWait)
	defer late.Stop()
	select {
	case <-f.ended:
	case <-late.C:
	}
}

// hand puts back what is no file. There is none before the loop runs.
func (f *far) hand() originals.Remote {
	return func(c originals.Saved, wrote originals.Value, ever bool) (string, bool, error) {
		was := c.Kind.Words(c.Found())
		if !ever {
			return was + " (never written)", false, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), farWait)
		defer cancel()
		var err error
		switch {
		case !f.started:
			err = errors.New("it is put back later: the other program is not asked before the first safe cap")
		case c.Kind == originals.Bandwidth:
			slice := f.manager.Adopt(strings.TrimPrefix(c.Path, slicePrefix))
			_, err = slice.PutBack(ctx, systemd.Bandwidth(c.Original), systemd.Bandwidth(wrote.Number))
		default:
			err = f.putBackLimit(ctx, c.Text, wrote.Text)
		}
		if errors.Is(err, systemd.ErrChanged) || errors.Is(err, ipmi.ErrLimitChanged) {
			return fmt.Sprintf("%v; left alone (it was %s)", err, was), true, nil
		}
		return was, false, err
	}
}

func (f *far) putBackLimit(ctx context.Context, found, wrote string) error {
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
