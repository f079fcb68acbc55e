package bench

import (
	"bytes"
	"context"
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

// emulatedNode is the name of the emulated node that powerd runs on.
const emulatedNode = "n01"

// startNode starts an emulated node, whose powerd finds the coordinators by gossip, and returns its folder.
func (g *group) startNode(more ...string) (dir string, err error) {
	more = append(more, "--no-worker", "--throttle", "signals")
	_, err = g.programs.Start(emulatedNode, nil, g.Node(g.bin, emulatedNode, rackName, 1, more...)...)
	return filepath.Join(g.NodeDir(), emulatedNode), err
}

// agentCost measures powerd on an idle emulated node that holds a lease of one coordinator.
func agentCost(ctx context.Context, r *run) error {
	g, err := newGroup(r, 1, units.Kilowatt)
	if err != nil {
		return err
	}
	defer r.end(g.programs.Close)
	dir, errNode := g.startNode()
	if err := errors.Join(errNode, g.startAll(ctx)); err != nil {
		return err
	}
	var pid int
	err = await(ctx, 20*time.Second, "powerd with a lease", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "run", "powerd.pid"))
		state, err := os.ReadFile(filepath.Join(dir, "state", "state.json"))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && pid > 0 && strings.Contains(string(state), "highest")
	})
	if err != nil {
		return err
	}
	var used, elapsed float64                                                                                         // s
	for _, span := range []time.Duration{pick(r, 5*time.Second, time.Second), pick(r, 20*time.Second, time.Second)} { // the first is for the start
		before, errBefore := cpuTime(pid)
		began := time.Now()
		if !pause.For(ctx, span) {
			return ctx.Err()
		}
		after, errAfter := cpuTime(pid)
		used, elapsed, err = (after - before).Seconds(), time.Since(began).Seconds(), errors.Join(errBefore, errAfter)
	}
	status, errStatus := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err := errors.Join(err, errStatus); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	r.put("agent-cpu", one(100*used/elapsed), nil, "over %.0f s; started as by its unit (one thread, timers at most 1 ms late)", elapsed)
	r.put("agent-rss", one(memoryOf(status, "VmRSS")), nil, "%.1f MB its own, the rest is its program file in the page cache", memoryOf(status, "RssAnon"))
	return nil
}

// cpuTime is the CPU time that a process has used, by the scheduler's count for each thread.
func cpuTime(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("bench: cannot read process %d: %w", pid, errors.Join(os.ErrNotExist, err))
	}
	for _, path := range threads {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		var ran time.Duration
		if _, err := fmt.Sscan(string(data), (*int64)(&ran)); err != nil {
			return 0, fmt.Errorf("bench: schedstat %q: %w", data, err)
		}
		sum += ran
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
// limits that the node had before the first start. No coordinator runs: a first safe cap needs none.
func agentStart(ctx context.Context, r *run) error {
	g, err := newGroup(r, 1, units.Kilowatt)
	if err != nil {
		return err
	}
	defer r.end(g.programs.Close)
	dir, err := g.startNode("--no-powerd")
	if err == nil {
		err = cluster.AwaitNodes(g.NodeDir(), emulatedNode)
	}
	if err != nil {
		return err
	}
	limits := map[string][]byte{}
	files, _ := filepath.Glob(filepath.Join(dir, "root/sys/class/powercap/intel-rapl:?/constraint_?_power_limit_uw")) // the pattern is valid
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
		d, err := g.startAgent(filepath.Join(dir, "powerd.yaml"), notices, limits)
		if err := errors.Join(err, ctx.Err()); err != nil {
			return fmt.Errorf("bench: start of powerd: %w", err)
		}
		took = append(took, 1000*d.Seconds())
	}
	r.put("agent-start", took, nil, "%d starts, a kill -9 before each but the first; max %.0f ms; reported by READY=1, checked in the limits", len(took), slices.Max(took))
	return nil
}

// startAgent restores the original limits, starts powerd, waits until it reports by sd_notify(3) that it is
// ready, checks that every limit is lower, and kills it.
func (g *group) startAgent(config string, notices *net.UnixConn, limits map[string][]byte) (took time.Duration, err error) {
	for file, text := range limits {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(text, 0) // as a write to a kernel file does
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return 0, err
		}
	}
	env := []string{"NOTIFY_SOCKET=" + notices.LocalAddr().String(), "GOMAXPROCS=1"} // as its unit does
	began := time.Now()
	p, err := g.programs.Start("powerd", env, filepath.Join(g.bin, "powerd"), "run", "--config", config)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	if err := notices.SetReadDeadline(began.Add(10 * time.Second)); err != nil {
		return 0, err
	}
	notice := make([]byte, 4096)
	for n := 0; !slices.Contains(strings.Split(string(notice[:n]), "\n"), "READY=1"); {
		if n, err = notices.Read(notice); err != nil {
			return 0, err
		}
	}
	took = time.Since(began)
	for file, high := range limits {
		now, err := os.ReadFile(file)
		if err != nil || bytes.HasPrefix(now, high) {
			return 0, errors.Join(fmt.Errorf("%s is still %s", filepath.Base(file), bytes.TrimSpace(high)), err)
		}
	}
	return took, nil
}
