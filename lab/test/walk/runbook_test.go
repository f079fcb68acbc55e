package walk

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

// A runbook is walked on the cluster that docs/secure.md sets up: three servers and a node.
const (
	runbooks   = "docs/runbooks/"
	lostQuorum = runbooks + "lost-quorum.md"
)

// cluster3 are the steps that set up that cluster.
func cluster3(tb testing.TB) []step {
	tb.Helper()
	return section(tb, "docs/secure.md", "### 1. ", "### 4. ")
}

// section returns the blocks of a page from the line that starts with one text to the line that starts with another, or
// to the page's end.
func section(tb testing.TB, page, from, to string) []step {
	tb.Helper()
	lines := strings.Split(string(testkit.Need(os.ReadFile(filepath.Join(root, page)))(tb)), "\n")
	starts := func(prefix string) int {
		return slices.IndexFunc(lines, func(l string) bool { return prefix != "" && strings.HasPrefix(l, prefix) })
	}
	first, last := starts(from), starts(to)
	if first < 0 || (last < 0 && to != "") {
		tb.Fatalf("%s has no section from %q to %q", page, from, to)
	}
	if to == "" {
		last = len(lines)
	}
	return slices.DeleteFunc(readPage(tb, page), func(s step) bool { return s.line < first || s.line > last })
}

// happens is what has to be wrong on a machine before a page is read.
func happens(machine, commands string) step {
	return step{page: "before", language: "sh", machines: []string{machine}, text: commands + "\n"}
}

// troubles makes the trouble that some runbooks are about, for a page whose commands need it.
func troubles() map[string][]step {
	return map[string][]step{
		"node-lost.md": {
			happens("n03", "kill -9 $(cat /run/headroom-powerd.pid)"),
			happens("c1", "until coordinator node list --no-headers | grep -q lost; do sleep 1; done"),
		},
		"fail-safe-active.md": {happens("c1", "coordinator brake set --reason test")},
		"no-leader.md":        {happens("c2", "systemctl stop headroom-coordinator"), happens("c3", "systemctl stop headroom-coordinator")},
	}
}

// absent matches the answer to a command about what this cluster does not have: a job, a machine that is off.
func absent() *regexp.Regexp {
	return regexp.MustCompile(`no such (job|alarm)|unknown (job|alarm)|no job|the node may be alive`)
}

// absentMost bounds the commands of all runbooks that are answered so.
const absentMost = 3

// looks matches commands that only look: in a runbook their exit code may mean that something is wrong.
func looks() *regexp.Regexp {
	return regexp.MustCompile(`^\s*coordinator (status|member health|alarm list)`)
}

// saysWrong reports whether a command of a runbook only reported that no leader answers or that there are warnings, or one of
// any page that a server has started a moment ago: pages are walked faster than people type.
func saysWrong(s step, command string, code int, output string) bool {
	switch {
	case !looks().MatchString(command):
		return false
	case strings.HasPrefix(s.page, runbooks):
		return code == cli.ExitUnreachable || code == cli.ExitDegraded
	}
	return code == cli.ExitDegraded && strings.Contains(output, "healthy, but not yet stable")
}

func TestRunbooks(t *testing.T) {
	var pages []string
	for _, f := range runbookPages(t) {
		if f != lostQuorum {
			pages = append(pages, f)
		}
	}
	last := func(f string) bool {
		return strings.HasSuffix(f, "no-leader.md") || strings.HasSuffix(f, "node-lost.md")
	}
	slices.SortStableFunc(pages, func(a, b string) int {
		switch {
		case last(a) == last(b):
			return strings.Compare(b, a) // a lost node before a lost leader
		case last(a):
			return 1
		}
		return -1
	})
	steps := cluster3(t)
	for _, f := range pages {
		steps = append(append(steps, troubles()[filepath.Base(f)]...), readPage(t, f)...)
	}
	walkSteps(t, steps, "")
}

func TestLostQuorum(t *testing.T) {
	stop := func(machine string) step { return happens(machine, "systemctl stop headroom-coordinator") }
	walkSteps(t, slices.Concat(cluster3(t),
		section(t, lostQuorum, "## Prepare", ""),
		[]step{stop("c2")}, section(t, lostQuorum, "## One server is broken", "## Prepare"),
		[]step{stop("c3"), stop("c4")}, section(t, lostQuorum, "**First", "## No server survives"),
		section(t, lostQuorum, "## What to expect", "## One server"),
		[]step{
			stop("c1"), happens("c1", "cp /var/backups/headroom-*.snap /mnt/walk/machines/c2/var/backups/headroom.snap"),
			happens("c2", "mv /var/lib/headroom/coordinator /var/lib/headroom/old"),
			happens("c2", "install -d -o headroom-coordinator /var/lib/headroom/coordinator && chown headroom-coordinator /var/backups/headroom.snap"),
		}, section(t, lostQuorum, "## No server survives", "## What to expect")), "")
}

// runbookPages are the pages of the directory but its index.
func runbookPages(tb testing.TB) []string {
	tb.Helper()
	c := exec.CommandContext(tb.Context(), "sh", "tools/files.sh")
	c.Dir = root
	var pages []string
	for f := range strings.FieldsSeq(string(testkit.Need(c.Output())(tb))) {
		if strings.HasPrefix(f, runbooks) && f != runbooks+"README.md" {
			pages = append(pages, f)
		}
	}
	return pages
}

// What a runbook has an operator type stands in blocks, which are walked. A sentence may name a command.
func TestRunbooksShowCommandsInBlocks(t *testing.T) {
	t.Parallel()
	testkit.Check(t, build())
	inline := regexp.MustCompile("`((?:coordinator|powerd|scheduler|systemctl) [^`]+)`")
	fence := regexp.MustCompile("(?s)```.*?```")
	for _, page := range runbookPages(t) {
		text := fence.ReplaceAllString(string(testkit.Need(os.ReadFile(filepath.Join(root, page)))(t)), "")
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			command := strings.Fields(m[1])
			isName := !slices.ContainsFunc(command, func(w string) bool { return w != strings.ToLower(w) || strings.ContainsAny(w, "-./=") })
			if command[0] == "systemctl" || !isName || len(command) > 3 {
				t.Errorf("%s: show %q in a block, which is walked", page, m[1])
			} else if help := exec.CommandContext(t.Context(), filepath.Join(binaries(), command[0]), append(command[1:], "--help")...); help.Run() != nil {
				t.Errorf("%s: there is no command %q", page, m[1])
			}
		}
	}
}
