package machine

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"headroom/capping"
	"headroom/internal/cli"
)

const (
	// filesForRest is left free of ceilings: for the socket and its callers, scrapes, streams
	// to coordinators, the BMC, the journal and held.json.
	filesForRest = 192
	// filesLeast is what powerd needs on the smallest machine.
	filesLeast = 128
)

// FilesHint is what helps where powerd may open too few files.
const FilesHint = "set LimitNOFILE= in the unit of powerd (it ships with enough for 2,048 CPUs), or ulimit -n where it is started by hand"

// planned is how many files powerd may open, and what it needs, when every policy keeps its ceiling open.
type planned struct{ policies, needed, allowed int }

// allowedFiles is how many files the process may open: the Go runtime has raised the soft limit to the hard one.
func allowedFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1024 // what every Linux allows
	}
	return int(min(r.Cur, 1<<20))
}

// CheckFiles fails where powerd may not open as many files as it needs on any machine. The
// error is a *cli.Error.
func CheckFiles() error {
	if allowed := allowedFiles(); allowed < filesLeast {
		return &cli.Error{
			Code: "few-files", Exit: cli.ExitFailed, Hint: FilesHint,
			Message: fmt.Sprintf("powerd needs %d open files or more, and may open %d; nothing was written", filesLeast, allowed),
		}
	}
	return nil
}

// planFiles counts what is open now, before the first ceiling is.
func planFiles(policies int) planned {
	p := planned{policies: policies, allowed: allowedFiles()}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		open = make([]os.DirEntry, filesLeast)
	}
	p.needed = len(open) + policies + filesForRest
	return p
}

// ceilings is how many policies may keep their ceilings open.
func (p planned) ceilings() int { return max(0, p.policies-max(0, p.needed-p.allowed)) }

// Hold keeps the ceilings open while the frequency holds the cap, or ends that.
func (m *Machine) Hold() {
	switch {
	case m.Freq == nil || m.Freq.Ceilings == nil:
	case m.Ladder.Use == capping.RungFreq:
		m.Freq.Ceilings.Hold(m.Freq.files.ceilings())
	case !m.Freq.Used:
		m.Freq.Ceilings.Hold(0)
	}
}

// FewFiles is why ceilings that hold the cap are opened anew for each use, "" where they are not.
func (m *Machine) FewFiles() string {
	if m.Ladder.Use != capping.RungFreq || m.Freq.files.needed <= m.Freq.files.allowed {
		return ""
	}
	p := m.Freq.files
	return fmt.Sprintf("powerd needs %d open files to hold the frequency of %d policies, and may open %d; it holds them all the same, but opens %d of them anew each time",
		p.needed, p.policies, p.allowed, p.policies-p.ceilings())
}
