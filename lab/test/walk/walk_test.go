// Package walk reads the documents as their readers do. What it claims: every command block of the README, of the
// pages on certificates, Hadoop and Spark, of the hooks and of the runbooks runs as it stands, one after the other; every YAML block
// passes config check; and every example of the manual pages is understood and carried out.
//
// Each page has machines of its own, made of namespaces, on a network of their own: c1 to c4 are 10.0.0.11 to 10.0.0.14,
// n01 to n16 are 10.0.0.21 to 10.0.0.36, and blocks without a mark run on 10.0.0.20. /etc is a copy, /var and /run are
// empty, and the working directory of the README is an overlay over the repository. Nothing outside changes, and
// everything that a page started ends with its test. scp and systemctl are stand-ins (testdata/bin): the one copies
// between machines of the page, the other runs ExecStart of our units.
//
// A block's language decides: sh is run, yaml is checked, and one without a language is output. The comment
// <!-- on c1 c2 --> in the line before a block names the machines that it runs on, <!-- not run: reason --> states why it
// does not run; the test lists those. A YAML block that begins with "# words.yaml" is a job file.
package walk

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/scheduler/jobfile"
)

// longest bounds a block. The suite has three minutes for all pages.
const longest = 90 * time.Second

func TestReadme(t *testing.T) { walk(t, "README.md", "/mnt/project") }

func TestSecure(t *testing.T) { walk(t, "docs/secure.md", "") }

// The pages about a running cluster begin with the one that secure.md sets up.
func TestUpgradeAndBackup(t *testing.T) {
	walkSteps(t, slices.Concat(cluster3(t), readPage(t, "docs/upgrade.md"), readPage(t, "docs/backup.md")), "")
}

func TestHadoop(t *testing.T) { walk(t, "docs/hadoop.md", "") }

func TestSpark(t *testing.T) { walk(t, "docs/spark.md", "") }

func TestHooks(t *testing.T) { walk(t, "hooks/README.md", "") }

// walk runs the blocks of a page in order.
func walk(t *testing.T, page, folder string) {
	t.Helper()
	walkSteps(t, readPage(t, page), folder)
}

func walkSteps(t *testing.T, steps []step, folder string) {
	t.Helper()
	t.Parallel()
	if folder == "" && os.Geteuid() != 0 {
		testkit.NotRun(t, steps[0].page+" needs root: its commands give files to groups")
	}
	n := start(t, folder, machinesOf(steps))
	written := map[string]map[string]any{}
	for _, s := range steps {
		if s.notRun != "" {
			t.Logf("%s:%d does not run: %s", s.page, s.line, s.notRun)
			continue
		}
		on := s.machines
		if len(on) == 0 {
			on = []string{workstation}
		}
		for _, machine := range on {
			n.walk(t, machine, s, written)
		}
	}
	if n.absent > absentMost {
		t.Errorf("%d commands name what the cluster does not have, at most %d", n.absent, absentMost)
	}
}

// walk runs one block on one machine.
func (n *network) walk(t *testing.T, machine string, s step, written map[string]map[string]any) {
	t.Helper()
	commands := s
	switch s.language {
	case "yaml":
		if _, err := jobfile.Parse("/jobs/words.yaml", []byte(s.text), []string{"high", "low"}); strings.HasPrefix(s.text, "# words.yaml\n") {
			if err != nil {
				t.Errorf("%s:%d: %v", s.page, s.line, err)
			}
			return
		}
		commands.machines = []string{machine}
		var err error
		if commands, err = configuration(commands, written); err != nil {
			t.Error(err)
			return
		}
	case "sh":
	default:
		return
	}
	background := regexp.MustCompile(`[^&]&[ ]*(#.*)?\n`).MatchString(commands.text)
	began := time.Now()
	result := n.run(t, machine, commands.text, background, longest)
	t.Logf("%s:%d on %s: %.1fs", s.page, s.line, machine, time.Since(began).Seconds())
	if !result.ended {
		t.Fatalf("%s:%d on %s: did not end within %v:\n%s\n%s", s.page, s.line, machine, longest, commands.text, result.output)
	}
	for _, f := range result.failures {
		if saysWrong(s, line(commands.text, f.line), f.code, result.output) {
			continue
		}
		if strings.HasPrefix(s.page, runbooks) && absent().MatchString(result.output) {
			t.Logf("%s:%d names what this cluster does not have: %s", s.page, s.line, line(commands.text, f.line))
			n.absent++
			continue
		}
		at := s.line // of a YAML block: its check is not in the page
		if s.language == "sh" {
			at += f.line - 1
		}
		t.Errorf("%s:%d on %s: exit code %d: %s\n%s", s.page, at, machine, f.code, line(commands.text, f.line), result.output)
	}
}

// line is the nth line of a text.
func line(text string, n int) string {
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// A page that is walked shows output in blocks without a language, and commands in blocks of sh.
func TestCommandsAreMarked(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(), runbookPages(t)...) {
		for _, s := range readPage(t, page) {
			first, _, _ := strings.Cut(strings.TrimPrefix(s.text, "$ "), " ")
			program := filepath.Base(first)
			_, err := os.Stat(filepath.Join(root, "cmd", program, "main.go"))
			if s.language == "" && (err == nil || program == "make" || program == "hadoop" || program == "spark-submit") {
				t.Errorf("%s:%d: a block of commands is marked sh", page, s.line)
			}
		}
	}
}

// pages are those that are walked.
func pages() []string {
	return []string{"README.md", "docs/secure.md", "docs/upgrade.md", "docs/backup.md", "docs/hadoop.md", "docs/spark.md", "hooks/README.md"}
}
