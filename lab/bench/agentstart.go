package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"headroom/lab/cluster"
)

// agentStart starts powerd again and again on an emulated node, each time after a
// kill -9, and over the limits that the machine had before the first.
func agentStart(ctx context.Context, r *run) ([]Item, error) {
	node, err := startBareNode(ctx, r)
	if err != nil {
		return nil, err
	}
	defer r.end(node.stop)
	limits, err := foundLimits(filepath.Join(r.dir, "n01", "root"))
	if err != nil {
		return nil, err
	}
	manager, err := listenNotices(filepath.Join(r.dir, "notify"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = manager.Close() }()
	var took []float64
	for range pick(r, 20, 4) {
		d, err := node.startAgent(ctx, r, manager, limits)
		if err != nil {
			return nil, err
		}
		took = append(took, 1000*d.Seconds())
	}
	i := newItem("agent-start", "powerd started: until its fail-safe cap is written and reads back", "ms").spread(took).
		aim(atMost(100, "p99 <= 100 ms")).
		say("%d starts, a kill -9 before each but the first; max %.0f ms; told by READY=1, checked in the limits", len(took), slices.Max(took))
	return []Item{i}, nil
}

// startBareNode starts an emulated node that leaves powerd to us. Its coordinators
// are on a port that nobody listens on: a first safe cap needs none.
func startBareNode(ctx context.Context, r *run) (*emulated, error) {
	nowhere, err := cluster.FreePorts(1)
	if err != nil {
		return nil, err
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	keyFile := filepath.Join(r.dir, "gossip.key")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("bench: gossip key: %w", err)
	}
	node, err := startNode(r, nowhere[0], keyFile, "--no-powerd")
	if err != nil {
		return nil, err
	}
	err = await(ctx, 20*time.Second, "emulated node", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "n01", "run", "node.sock"))
		return err == nil
	})
	if err != nil {
		return nil, errors.Join(err, node.stop())
	}
	return node, nil
}

// emulated is an emulated node with what runs beside it.
type emulated struct {
	programs *cluster.Group
	node     *cluster.Program
}

// startNode starts the emulated node n01 in the scratch folder; its agent finds the
// coordinators by gossip at join. more are further flags of `powerlab node`.
func startNode(r *run, join, keyFile string, more ...string) (*emulated, error) {
	programs, err := cluster.NewGroup(r.dir)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	argv := append([]string{
		filepath.Join(r.Bin, "powerlab"), "node", "n01", "--dir", r.dir, "--join", join, "--key-file", keyFile,
		"--domain", rackName, "--bin", r.Bin, "--no-worker", "--throttle", "signals",
	}, more...)
	node, err := programs.Start("n01", nil, argv...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %w", err), programs.Close())
	}
	return &emulated{programs, node}, nil
}

// stop ends the node, which ends its powerd first.
func (e *emulated) stop() error {
	e.node.Stop(stopGrace)
	return e.programs.Close()
}

// foundLimits are the limits of the machine's packages as they are now, by file.
func foundLimits(root string) (map[string][]byte, error) {
	files, err := filepath.Glob(filepath.Join(root, "sys/class/powercap/intel-rapl:?/constraint_?_power_limit_uw"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(fmt.Errorf("bench: limits of the emulated node: %w", fs.ErrNotExist), err)
	}
	found := map[string][]byte{}
	for _, f := range files {
		if found[f], err = os.ReadFile(f); err != nil {
			return nil, fmt.Errorf("bench: limits of the emulated node: %w", err)
		}
	}
	return found, nil
}

// startAgent starts powerd over the limits that were found, waits until it says
// that it holds a safe cap, looks whether it does, and kills it.
func (e *emulated) startAgent(ctx context.Context, r *run, manager *net.UnixConn, found map[string][]byte) (time.Duration, error) {
	for file, text := range found {
		if err := overwrite(file, text); err != nil {
			return 0, err
		}
	}
	env := []string{"NOTIFY_SOCKET=" + manager.LocalAddr().String(), "GOMAXPROCS=1"} // as its unit does
	began := time.Now()
	p, err := e.programs.Start("powerd", env, filepath.Join(r.Bin, "powerd"), "run", "--config", filepath.Join(r.dir, "n01", "powerd.yaml"))
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	defer p.Kill()
	if err := awaitReady(ctx, manager, began.Add(readyMost)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	for file, high := range found {
		now, err := os.ReadFile(file)
		if err != nil || bytes.Equal(firstLine(now), firstLine(high)) {
			return 0, errors.Join(fmt.Errorf("bench: %s of %s: %w", filepath.Base(file), firstLine(now), errNotSafe), err)
		}
	}
	return took, nil
}

// readyMost bounds one start.
const readyMost = 10 * time.Second

// listenNotices is the service manager's end of what powerd tells about itself
// (sd_notify(3)).
func listenNotices(path string) (*net.UnixConn, error) {
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return c, nil
}

// awaitReady waits for the notice that the service is ready.
func awaitReady(ctx context.Context, manager *net.UnixConn, end time.Time) error {
	stop := context.AfterFunc(ctx, func() { _ = manager.SetReadDeadline(time.Now()) })
	defer stop()
	if err := manager.SetReadDeadline(end); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	notice := make([]byte, 4096)
	for {
		n, err := manager.Read(notice)
		if err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("bench: powerd is ready: %w: %w", errNotYet, err))
		}
		if slices.ContainsFunc(bytes.Split(notice[:n], []byte("\n")), func(line []byte) bool { return string(line) == "READY=1" }) {
			return nil
		}
	}
}

// overwrite puts text at the beginning of a file, as a store into the kernel's does.
func overwrite(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(text, 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("bench: limits of the emulated node: %w", err)
	}
	return nil
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return line
}
