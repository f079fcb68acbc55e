package demo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// stopScript ends a cluster that was left running; pidFile lists its processes.
const (
	stopScript = "stop.sh"
	pidFile    = "pids"
)

// keep starts the coordinator again that was killed, writes how to stop the
// cluster, and prints what to try. The programs are sessions of their own and go
// on without the demo.
func (l *lab) keep(w io.Writer) error {
	for i := range l.members {
		if m := &l.members[i]; m.program.meant.Load() {
			if err := l.startMember(m); err != nil {
				return err
			}
		}
	}
	var pids []string
	for _, p := range l.fleet.running() {
		pids = append(pids, strconv.Itoa(p.Pid()))
	}
	if err := os.WriteFile(l.path(pidFile), []byte(strings.Join(pids, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("demo: keep: %w", err)
	}
	if err := os.WriteFile(l.path(stopScript), []byte(stopText), 0o755); err != nil {
		return fmt.Errorf("demo: keep: %w", err)
	}
	addrs := strings.Join(l.addresses(), ",")
	_, err := fmt.Fprintf(w, `
%d emulated nodes, %d coordinators and a scheduler are left running. Try:
  export HEADROOM_ADDR=%s
  %s status --watch
  %s node list
  %s budget set %.0fW --reason "trying it"
  %s brake set --reason "trying it"
  %s brake lift
  %s submit --addr %s %s
  %s node exec n01 --dir %s -- sha256sum /dev/zero
stop everything: %s
`,
		len(l.nodes), servers, addrs, filepath.Join(l.bin, "coordinator"), filepath.Join(l.bin, "coordinator"),
		filepath.Join(l.bin, "coordinator"), l.cut().Watts(), filepath.Join(l.bin, "coordinator"), filepath.Join(l.bin, "coordinator"), filepath.Join(l.bin, "scheduler"), l.scheduler, l.path("jobs", "words-1.yaml"),
		filepath.Join(l.bin, "powerlab"), l.path("nodes"), l.path(stopScript))
	return err
}

// stopText ends the processes listed beside it, the newest (the nodes) first, as
// long as their command lines still name this folder: process ids are reused.
const stopText = `#!/bin/sh
# Ends the cluster that powerlab demo --keep left running in this folder.
dir=$(cd "$(dirname "$0")" && pwd) || exit 1
ours() { tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | grep -qF "$dir/"; }
# left prints those that still run.
left() {
	for pid in $(sort -rn "$dir/pids"); do
		if ours "$pid"; then echo "$pid"; fi
	done
}
# end sends a signal to all of them and waits up to 8 s for their end.
end() {
	for pid in $(left); do kill -s "$1" "$pid"; done
	tries=0
	while [ -n "$(left)" ] && [ "$tries" -lt 80 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
}
end TERM
[ -z "$(left)" ] || end KILL
if [ -n "$(left)" ]; then
	echo "processes still running:" $(left) >&2
	exit 1
fi
: >"$dir/pids"
echo "stopped"
`

// keptPIDs are the processes of a kept cluster in dir that still run.
func keptPIDs(dir string) []int {
	text, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return nil
	}
	var pids []int
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(args, []byte(dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
