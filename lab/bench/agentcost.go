package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"headroom/internal/pause"
	"headroom/units"
)

// agentCost measures a real powerd on an idle emulated node, holding a lease of
// one coordinator.
func agentCost(ctx context.Context, r *run) ([]Item, error) {
	g, err := startGroup(ctx, r, filepath.Join(r.dir, "group"), 1, units.Kilowatt)
	if err != nil {
		return nil, err
	}
	defer r.end(g.stop)
	node, err := startNode(r, g.members[0].Gossip, g.servers.GossipKey())
	if err != nil {
		return nil, err
	}
	defer r.end(node.stop)
	pid, err := awaitPowerd(ctx, filepath.Join(r.dir, "n01"))
	if err != nil {
		return nil, err
	}
	if !pause.For(ctx, pick(r, 5*time.Second, 2*time.Second)) { // start-up is no steady state
		return nil, ctx.Err()
	}
	return watchProcess(ctx, pid, pick(r, 20*time.Second, 5*time.Second))
}

// awaitPowerd waits until the node's powerd runs and has stored a grant, and answers its process id.
func awaitPowerd(ctx context.Context, dir string) (int, error) {
	pid := 0
	err := await(ctx, 20*time.Second, "powerd with a lease", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "run", "powerd.pid"))
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
			return false
		}
		state, err := os.ReadFile(filepath.Join(dir, "state", "state.json"))
		return err == nil && strings.Contains(string(state), "highest")
	})
	return pid, err
}

func watchProcess(ctx context.Context, pid int, span time.Duration) ([]Item, error) {
	before, how, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if !pause.For(ctx, span) {
		return nil, ctx.Err()
	}
	after, _, err := cpuTime(pid)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(began)
	memory, err := statusKB(pid)
	if err != nil {
		return nil, err
	}
	image, err := imageSize(pid)
	if err != nil {
		return nil, err
	}
	mb := func(key string) float64 { return memory[key] * 1024 / 1e6 }
	cpu := newItem("agent-cpu", "share of one core that powerd uses on an idle node, one loop each 250 ms", "%").
		is(100*(after-before).Seconds()/elapsed.Seconds()).aim(atMost(0.3, "<= 0.3 %")).
		say("over %.0f s, from %s; started as by its unit (one thread, timers 1 ms late at most)", elapsed.Seconds(), how)
	rss := newItem("agent-rss", "resident memory of that powerd", "MB").is(mb("VmRSS")).aim(atMost(20, "<= 20 MB")).
		say("%.1f MB its own, %.1f of the %.1f MB of its program file, as many as the kernel maps beside those in use; most so far %.1f MB",
			mb("RssAnon"), mb("RssFile"), image/1e6, mb("VmHWM"))
	return []Item{cpu, rss}, nil
}

// cpuTime is the CPU time that a process has used, and where that was read: the
// scheduler's nanoseconds of every thread, or clock ticks where it keeps none.
func cpuTime(pid int) (time.Duration, string, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	threads, err := os.ReadDir(filepath.Join(dir, "task"))
	if err != nil {
		return 0, "", fmt.Errorf("bench: %w: %w", errNoProcess, err)
	}
	var sum time.Duration
	for _, t := range threads {
		data, err := os.ReadFile(filepath.Join(dir, "task", t.Name(), "schedstat"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return tickTime(dir)
		case err != nil:
			return 0, "", fmt.Errorf("bench: %w: %w", errNoProcess, err)
		}
		ran, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, "", fmt.Errorf("bench: schedstat %q: %w", data, err)
		}
		sum += time.Duration(ns)
	}
	return sum, "the scheduler's nanoseconds of all threads", nil
}

// userHertz is the unit of utime and stime in /proc/PID/stat (proc(5)); it is 100 on every Linux that Go runs on.
const userHertz = 100

func tickTime(dir string) (time.Duration, string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, "", fmt.Errorf("bench: %w: %w", errNoProcess, err)
	}
	// Behind the last bracket, since the name may hold anything; field 3 of proc(5) comes first.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, "", fmt.Errorf("bench: stat %q: %w", data, errNoProcess)
	}
	user, errU := strconv.ParseInt(fields[11], 10, 64)
	system, errS := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / userHertz, "clock ticks of 10 ms", errors.Join(errU, errS)
}

// imageSize is how much of its program file a process has in its address space, in bytes.
func imageSize(pid int) (float64, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	exe, errExe := os.Readlink(filepath.Join(dir, "exe"))
	maps, err := os.ReadFile(filepath.Join(dir, "maps"))
	if err = errors.Join(errExe, err); err != nil {
		return 0, fmt.Errorf("bench: %w: %w", errNoProcess, err)
	}
	sum := 0.0
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if !strings.HasSuffix(strings.TrimSpace(line), " "+exe) {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, fmt.Errorf("bench: maps %q: %w", line, err)
		}
		sum += float64(to - from)
	}
	return sum, nil
}

// statusKB are the memory lines of /proc/PID/status, in KiB.
func statusKB(pid int) (map[string]float64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, fmt.Errorf("bench: %w: %w", errNoProcess, err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if number, ok := strings.CutSuffix(strings.TrimSpace(value), " kB"); ok {
			if v, err := strconv.ParseFloat(number, 64); err == nil {
				out[key] = v
			}
		}
	}
	return out, nil
}
