package nspawn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"headroom/systemd"
)

const (
	// probe is this test binary inside the machine.
	probe = "/usr/bin/headroom-probe"
	// probeEnv makes the test binary a probe: "notify", "slices", "refused", "denied", "rivals", "spy", "task" or "orders".
	probeEnv = "HEADROOM_PROBE"
	// gate is the file that lets the notifying probe be ready.
	gate = "/run/headroom-probe-gate"
	// batch is the slice of low priority.
	batch = "batch.slice"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(probeEnv); what != "" {
		if err := runProbe(what, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runProbe is what the test binary does inside the machine.
func runProbe(what string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch what {
	case "notify":
		return probeNotify()
	case "spy":
		return spy(os.Args[1], out)
	case "task":
		return handTask(os.Args[1:], out)
	case "orders":
		return orderTask(os.Args[1:], out)
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	m := systemd.New(systemd.Options{Root: root, Dial: systemd.SystemBus})
	defer func() { _ = errors.Join(m.Close(), root.Close()) }()
	switch what {
	case "slices":
		return probeSlices(ctx, m, out)
	case "refused":
		return probeRefused(ctx, m, out)
	case "denied":
		return probeDenied(ctx, m, out)
	case "rivals":
		units, err := m.ActiveUnits(ctx, systemd.RivalUnits()...)
		for _, u := range units {
			_, _ = fmt.Fprintln(out, u.Name, u.Active, u.Sub)
		}
		return err
	}
	return fmt.Errorf("no probe %q", what)
}

// probeNotify is ready when the gate opens, beats, and notifies its stop.
func probeNotify() error {
	n, err := systemd.OpenNotify(os.Getenv)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	if err := n.Status("waits for the gate"); err != nil {
		return err
	}
	ready := false
	for {
		if _, err := os.Stat(gate); err == nil && !ready {
			ready = true
			if err := n.Ready(fmt.Sprintf("beats within %v\nREADY=0", n.Watchdog())); err != nil {
				return err
			}
		}
		select {
		case <-signals:
			return n.Stopping("goodbye")
		case <-time.After(glance):
		}
		if err := n.Beat(); err != nil {
			return err
		}
	}
}

// probeSlices bounds a slice, reads it back and puts it back.
func probeSlices(ctx context.Context, m *systemd.Manager, out io.Writer) error {
	all, err := m.Slices(ctx, []string{"system.slice", batch, "-.slice", "no slice"})
	_, _ = fmt.Fprintln(out, "refused:", err)
	if len(all) != 1 || all[0].Name() != batch {
		return fmt.Errorf("may be bounded: %v, want %s alone", all, batch)
	}
	s := all[0]
	found, err := s.Read(ctx)
	if err != nil {
		return err
	}
	held, err := s.Set(ctx, systemd.CPUs(1.5))
	if err != nil && !errors.Is(err, systemd.ErrNotTaken) { // a kernel without the controller
		return err
	}
	files, _ := filepath.Glob("/run/systemd/system.control/" + batch + ".d/*")
	lasting, _ := filepath.Glob("/etc/systemd/system.control/" + batch + ".d/*")
	back, err := s.PutBack(ctx, found.Asked, systemd.CPUs(1.5))
	if err != nil && !errors.Is(err, systemd.ErrNotTaken) {
		return err
	}
	_, _ = fmt.Fprintf(out, "found %v, bounded %v, put back %v, runtime files %d, lasting files %d\n", found.Asked, held.Asked, back.Asked, len(files), len(lasting))
	_, err = s.PutBack(ctx, systemd.CPUs(7), systemd.CPUs(1.5))
	_, _ = fmt.Fprintln(out, "over another writer:", errors.Is(err, systemd.ErrChanged))
	return nil
}

// probeRefused requests a slice that holds a coordinator.
func probeRefused(ctx context.Context, m *systemd.Manager, out io.Writer) error {
	all, err := m.Slices(ctx, []string{batch})
	_, _ = fmt.Fprintln(out, len(all), err)
	return nil
}

// probeDenied bounds a slice without the right to.
func probeDenied(ctx context.Context, m *systemd.Manager, out io.Writer) error {
	all, err := m.Slices(ctx, []string{batch})
	if err != nil {
		return err
	}
	_, err = all[0].Set(ctx, systemd.CPU)
	_, _ = fmt.Fprintln(out, "denied:", errors.Is(err, systemd.ErrDenied), err)
	return nil
}
