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
	for _, m := range l.servers.Members {
		if l.fleet.find(m.ID).meant.Load() {
			if err := l.startMember(m); err != nil {
				return err
			}
		}
	}
	pids := ""
	for _, p := range l.fleet.running() {
		pids += strconv.Itoa(p.Pid()) + "\n"
	}
	err := os.WriteFile(l.path(pidFile), []byte(pids), 0o644)
	if err == nil {
		err = os.WriteFile(l.path(stopScript), []byte(stopText), 0o755)
	}
	if err != nil {
		return fmt.Errorf("demo: keep: %w", err)
	}
	text := l.try("until they are stopped", "coordinator node list", `coordinator brake set --reason "trying it"`, "coordinator brake lift",
		"scheduler submit --addr "+l.scheduler+" "+l.path("jobs", "words-1.yaml"),
		"powerlab node exec n01 --dir "+l.servers.NodeDir()+" -- sha256sum /dev/zero")
	_, err = fmt.Fprintf(w, "%s\nstop everything: %s\n", text, l.path(stopScript))
	return err
}

// try are commands to try on the cluster while it runs, with those that are given.
func (l *lab) try(until string, more ...string) string {
	text := fmt.Sprintf("\n%d emulated nodes, %d coordinators and a scheduler are running %s. Try:\n  export HEADROOM_ADDR=%s",
		len(l.nodes), servers, until, strings.Join(l.servers.Addresses(), ","))
	for _, args := range append([]string{
		"coordinator status --watch", fmt.Sprintf(`coordinator budget set %.0fW --reason "trying it"`, l.cut().Watts()),
	}, more...) {
		text += "\n  " + l.bin + "/" + args
	}
	return text
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
func keptPIDs(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, pidFile)) // none is kept where there is no file
	for word := range strings.FieldsSeq(string(text)) {
		pid, errID := strconv.Atoi(word)
		args, err := os.ReadFile(filepath.Join("/proc", word, "cmdline"))
		if errID == nil && err == nil && bytes.Contains(args, []byte(dir+"/")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
