package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killFound kills the processes of a group without a cgroup and returns their number: those with its mark, and for the
// last group all that this process has adopted. It reaps the adopted ones that have ended.
func (g *Group) killFound() (found int) {
	started := map[int]bool{}
	for _, other := range g.room.live {
		started[other.pid] = true
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		// The second field is the program's name in brackets, with whatever it holds; then its state and its parent.
		text := read(name, "")
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		switch {
		case started[pid] || len(fields) < 2 || fields[1] != strconv.Itoa(os.Getpid()):
		case fields[0] == "Z":
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		case len(started) == 1 && syscall.Kill(pid, syscall.SIGKILL) == nil:
			found++ // its children are adopted next
		}
	}
	return found + EndMarked(g.mark)
}

// endFound repeats killFound until nothing is found.
func (g *Group) endFound() error {
	for range endTries {
		g.room.mu.Lock()
		found := g.killFound()
		g.room.mu.Unlock()
		if found == 0 {
			return nil
		}
		time.Sleep(endPause)
	}
	return fmt.Errorf("%s: %w", g.name, ErrAlive)
}

// EndMarked kills every process that has the mark, NAME=VALUE, in its environment, and returns their number.
func EndMarked(mark string) (found int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		handle, err := os.FindProcess(pid) // what is read next is of this process or of none
		if err != nil {
			continue
		}
		env := strings.Split(read("/proc/"+e.Name(), "environ"), "\x00")
		if slices.Contains(env, mark) && handle.Signal(syscall.SIGKILL) == nil {
			found++
		}
		_ = handle.Release()
	}
	return found
}

// resident returns the memory of processes.
func resident(pids []int) (bytes uint64) {
	for _, pid := range pids {
		if fields := strings.Fields(read("/proc/"+strconv.Itoa(pid), "statm")); len(fields) > 1 { // pages: all, resident, others
			pages, _ := strconv.ParseUint(fields[1], 10, 64)
			bytes += pages * uint64(os.Getpagesize())
		}
	}
	return bytes
}
