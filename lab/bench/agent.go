package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"headroom/internal/pause"
	"headroom/lab/cluster"
	"headroom/units"
)

// emulated is an emulated node and the programs that are started next to it.
type emulated struct {
	programs *cluster.Group
	node     *cluster.Program
}

// startNode starts the emulated node n01 in the scratch folder; its powerd finds the
// coordinators by gossip at join. more are further flags of `powerlab node`.
func startNode(r *run, join, keyFile string, more ...string) (*emulated, error) {
	programs, err := cluster.NewGroup(r.dir)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	node, err := programs.Start("n01", nil, append([]string{
		filepath.Join(r.bin, "powerlab"), "node", "n01", "--dir", r.dir, "--join", join, "--key-file", keyFile,
		"--domain", rackName, "--bin", r.bin, "--no-worker", "--throttle", "signals",
	}, more...)...)
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

// agentCost measures powerd on an idle emulated node that holds a lease of one coordinator.
func agentCost(ctx context.Context, r *run) error {
	g, err := startGroup(ctx, r, filepath.Join(r.dir, "group"), 1, units.Kilowatt)
	if err != nil {
		return err
	}
	defer r.end(g.stop)
	node, err := startNode(r, g.members[0].Gossip, g.servers.GossipKey())
	if err != nil {
		return err
	}
	defer r.end(node.stop)
	var pid int
	err = await(ctx, 20*time.Second, "powerd with a lease", func() bool {
		text, err := os.ReadFile(filepath.Join(r.dir, "n01", "run", "powerd.pid"))
		if err != nil {
			return false
		}
		state, err := os.ReadFile(filepath.Join(r.dir, "n01", "state", "state.json"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0 && strings.Contains(string(state), "highest")
	})
	if err != nil {
		return err
	}
	if !pause.For(ctx, pick(r, 5*time.Second, time.Second)) { // after the start
		return ctx.Err()
	}
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if !pause.For(ctx, pick(r, 20*time.Second, time.Second)) {
		return ctx.Err()
	}
	after, err := cpuTime(pid)
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return fmt.Errorf("bench: %w: %w", errNoProcess, err)
	}
	r.put("agent-cpu", one(100*(after-before).Seconds()/elapsed.Seconds()), nil, "over %.0f s; started as by its unit (one thread, timers at most 1 ms late)", elapsed.Seconds())
	r.put("agent-rss", one(memoryOf(status, "VmRSS")), nil, "%.1f MB its own, the rest is its program file in the page cache", memoryOf(status, "RssAnon"))
	return nil
}

// cpuTime is the CPU time that a process has used, by the scheduler's count for each thread.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "schedstat"))
	if err != nil || len(threads) == 0 {
		return 0, errors.Join(fmt.Errorf("bench: process %d: %w", pid, errNoProcess), err)
	}
	var sum time.Duration
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		ran, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("bench: schedstat %q: %w", data, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// memoryOf is a line of /proc/PID/status in MB.
func memoryOf(status []byte, key string) float64 {
	_, rest, _ := strings.Cut(string(status), key+":")
	kb, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	v, _ := strconv.ParseFloat(kb, 64)
	return v * 1024 / 1e6
}

// agentStart starts powerd repeatedly on an emulated node, each time after a kill -9 and over the
// limits that the node had before the first start. There is no coordinator: a first safe cap needs none.
func agentStart(ctx context.Context, r *run) error {
	nowhere, err := cluster.FreePorts(1)
	if err != nil {
		return err
	}
	var key [32]byte
	_, _ = rand.Read(key[:])
	keyFile := filepath.Join(r.dir, "gossip.key")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600); err != nil {
		return fmt.Errorf("bench: gossip key: %w", err)
	}
	node, err := startNode(r, nowhere[0], keyFile, "--no-powerd")
	if err != nil {
		return err
	}
	defer r.end(node.stop)
	err = await(ctx, 20*time.Second, "emulated node", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "n01", "run", "node.sock"))
		return err == nil
	})
	if err != nil {
		return err
	}
	limits := map[string][]byte{}
	files, _ := filepath.Glob(filepath.Join(r.dir, "n01", "root", "sys/class/powercap/intel-rapl:?/constraint_?_power_limit_uw")) // the pattern is valid
	for _, f := range files {
		if limits[f], err = os.ReadFile(f); err != nil {
			return fmt.Errorf("bench: limits of the emulated node: %w", err)
		}
	}
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(r.dir, "notify"), Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	defer func() { _ = notices.Close() }()
	var took []float64
	for range pick(r, 20, 3) {
		d, err := node.startAgent(ctx, r, notices, limits)
		if err != nil {
			return err
		}
		took = append(took, 1000*d.Seconds())
	}
	r.put("agent-start", took, nil, "%d starts, a kill -9 before each but the first; max %.0f ms; reported by READY=1, checked in the limits", len(took), slices.Max(took))
	return nil
}

// startAgent restores the original limits, starts powerd, waits until it reports that it is ready,
// checks that every limit is lower, and kills it.
func (e *emulated) startAgent(ctx context.Context, r *run, notices *net.UnixConn, limits map[string][]byte) (time.Duration, error) {
	for file, text := range limits {
		if err := overwrite(file, text); err != nil {
			return 0, err
		}
	}
	env := []string{"NOTIFY_SOCKET=" + notices.LocalAddr().String(), "GOMAXPROCS=1"} // as its unit does
	began := time.Now()
	p, err := e.programs.Start("powerd", env, filepath.Join(r.bin, "powerd"), "run", "--config", filepath.Join(r.dir, "n01", "powerd.yaml"))
	if err != nil {
		return 0, fmt.Errorf("bench: %w", err)
	}
	defer p.Kill()
	if err := awaitReady(ctx, notices, began.Add(10*time.Second)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	for file, high := range limits {
		now, err := os.ReadFile(file)
		if err != nil || bytes.HasPrefix(now, high) {
			return 0, errors.Join(fmt.Errorf("bench: %s is still %s: %w", filepath.Base(file), bytes.TrimSpace(high), errNotSo), err)
		}
	}
	return took, nil
}

// awaitReady is the service manager's part of sd_notify(3).
func awaitReady(ctx context.Context, notices *net.UnixConn, end time.Time) error {
	stop := context.AfterFunc(ctx, func() { _ = notices.SetReadDeadline(time.Now()) })
	defer stop()
	if err := notices.SetReadDeadline(end); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	notice := make([]byte, 4096)
	for {
		n, err := notices.Read(notice)
		if err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("bench: powerd is ready: %w: %w", errNotYet, err))
		}
		if slices.Contains(strings.Split(string(notice[:n]), "\n"), "READY=1") {
			return nil
		}
	}
}

// overwrite stores text at the beginning of a file, as a write to a kernel file does.
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
