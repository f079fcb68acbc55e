// Claims: every proof on a real engine that the suite leaves out is listed and has a line that says how it went, and a
// line that is older than what it proves is named: a warning on a developer's machine, a failure in CI when it has been
// so for 30 commits, or when the newest line says that the proof failed.
package headroom_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

const (
	engineList, engineLines = "lab/test/engines.txt", "lab/test/engines.jsonl"
	// staleMost is for how many commits CI bears a line that is out of date.
	staleMost = 30
)

// engineProof is one line of lab/test/engines.txt.
type engineProof struct{ name, where, test string }

// engineLine is one line of lab/test/engines.jsonl.
type engineLine struct {
	Name     string `json:"name"`
	Date     string `json:"date"`
	Commit   string `json:"commit"`
	Versions string `json:"versions"`
	Result   string `json:"result"`
	Seconds  int    `json:"seconds"`
	Reason   string `json:"reason"`
}

// engineFolders are what the result of a proof depends on, by the first word of its name.
func engineFolders(name string) []string {
	engine, _, _ := strings.Cut(name, "-")
	folders := map[string][]string{
		"hadoop": {"hooks/hadoop", "hooks/apps", "hooks/client", "scheduler/yarn", "scheduler/hookserver", "lab/hadoop"},
		"spark":  {"hooks/spark", "hooks/apps-spark", "hooks/client", "scheduler/spark", "scheduler/sparkapp", "scheduler/hookserver", "lab/spark"},
	}[engine]
	if folders == nil {
		return nil
	}
	return append(folders, "hooks/pom.xml", "hooks/versions.properties", ":(exclude)*.md", ":(exclude)*_test.go")
}

// engineProofs reads the list of proofs.
func engineProofs(t *testing.T) []engineProof {
	t.Helper()
	var proofs []engineProof
	for line := range strings.Lines(string(testkit.Need(os.ReadFile(engineList))(t))) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 3 || engineFolders(f[0]) == nil {
			t.Errorf("%s: %q: want NAME FOLDER TEST, and a name that begins with hadoop- or spark-", engineList, line)
			continue
		}
		proofs = append(proofs, engineProof{f[0], f[1], f[2]})
	}
	return proofs
}

// readEngineLines reads lines as lab/test/engines.sh writes them, the newest last.
func readEngineLines(data []byte) ([]engineLine, error) {
	var lines []engineLine
	for text := range bytes.Lines(data) {
		var l engineLine
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		if !slices.Contains([]string{"passed", "failed", "not run"}, l.Result) || (l.Result == "not run") != (l.Reason != "") {
			return nil, fmt.Errorf("line %d: result %q, reason %q", len(lines)+1, l.Result, l.Reason)
		}
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b engineLine) int { return cmp.Compare(a.Date, b.Date) })
	return lines, nil
}

func TestEngineProofsAreListed(t *testing.T) {
	t.Parallel()
	needLab(t)
	listed := map[string]bool{}
	proofs := engineProofs(t)
	for _, p := range proofs {
		test, _, _ := strings.Cut(p.test, "/")
		listed[filepath.Clean(p.where)+" "+test] = true
		if _, err := os.Stat(p.test); p.where == "sh" && err != nil {
			t.Errorf("%s: %s: %v", engineList, p.name, err)
		}
	}
	found := map[string]bool{}
	for _, file := range tracked(t) {
		if !strings.HasPrefix(file, "lab/test/") || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, f := range strings.Split(string(testkit.Need(os.ReadFile(file))(t)), "\nfunc ")[1:] {
			if name, body, _ := strings.Cut(f, "("); strings.Contains(body, "testkit.Engines(") {
				found[filepath.Dir(file)+" "+name] = true
			}
		}
	}
	for test := range found {
		if !listed[test] {
			t.Errorf("%s does not list %s, which calls testkit.Engines", engineList, test)
		}
	}
	for test := range listed {
		if !strings.HasPrefix(test, "sh ") && !found[test] {
			t.Errorf("%s: %s: no such test calls testkit.Engines", engineList, test)
		}
	}
	lines, err := readEngineLines(testkit.Need(os.ReadFile(engineLines))(t))
	testkit.Check(t, err)
	for _, l := range lines {
		if !slices.ContainsFunc(proofs, func(p engineProof) bool { return p.name == l.Name }) {
			t.Errorf("%s: no proof is called %s: remove its lines", engineLines, l.Name)
		}
	}
}

func TestEnginesAreProven(t *testing.T) {
	t.Parallel()
	needLab(t)
	c, why := openCheckout(".")
	if why != "" {
		testkit.NotRun(t, why)
	}
	lines, err := readEngineLines(testkit.Need(os.ReadFile(engineLines))(t))
	testkit.Check(t, err)
	for _, p := range engineProofs(t) {
		why, red := c.outdated(p.name, lines)
		switch {
		case why == "":
		case red && os.Getenv("HEADROOM_CI") != "":
			t.Errorf("%s %s: make engines PROOFS=%s, and commit %s", p.name, why, p.name, engineLines)
		default:
			t.Logf("warning: %s %s: make engines PROOFS=%s", p.name, why, p.name)
		}
	}
}

// checkout is a repository with its whole history, by its folder.
type checkout string

// openCheckout opens the repository whose root is dir. why tells what is missing when there is none.
func openCheckout(dir string) (c checkout, why string) {
	c = checkout(dir)
	top, err := c.git("rev-parse", "--show-prefix", "--is-shallow-repository")
	switch {
	case err != nil:
		return "", "no git repository to compare with " + engineLines
	case top != "false": // the prefix, an empty line at the root, comes before
		return "", "not the root of a repository with its whole history: cannot compare with " + engineLines
	}
	return c, ""
}

func (c checkout) git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", string(c)}, args...)...).Output()
	return strings.TrimSpace(string(out)), err
}

// count is how many commits of the main line git rev-list finds; without an answer 0.
func (c checkout) count(args ...string) int {
	out, _ := c.git(append([]string{"rev-list", "--first-parent", "--count"}, args...)...)
	n, _ := strconv.Atoi(out)
	return n
}

// outdated tells why a proof must run again, "" when it need not. red reports that CI bears it no longer.
func (c checkout) outdated(name string, lines []engineLine) (why string, red bool) {
	var ran, last engineLine
	for _, l := range lines {
		if l.Name == name {
			last = l
			if l.Result != "not run" {
				ran = l
			}
		}
	}
	folders := append([]string{"--"}, engineFolders(name)...)
	switch {
	case ran.Name == "":
		why = "has never run"
		if last.Reason != "" {
			why += " (" + last.Reason + ")"
		}
		added, _ := c.git("log", "--reverse", "--format=%H", "-S"+name+" ", "HEAD", "--", engineList)
		added, _, _ = strings.Cut(added, "\n")
		return why, added != "" && c.count(added+"..HEAD") > staleMost
	case ran.Result == "failed":
		return "failed on " + ran.Date + " at " + ran.Commit, true
	}
	if _, err := c.git("cat-file", "-e", ran.Commit+"^{commit}"); err != nil {
		return "ran at " + ran.Commit + ", which is not in this repository", c.count("--since="+ran.Date, "HEAD") > staleMost
	}
	if _, err := c.git(append([]string{"diff", "--quiet", ran.Commit, "HEAD"}, folders...)...); err == nil {
		return "", false
	}
	since := ran.Commit
	changes, _ := c.git(append([]string{"rev-list", "--first-parent", ran.Commit + "..HEAD"}, folders...)...)
	if all := strings.Fields(changes); len(all) > 0 {
		since = all[len(all)-1]
	}
	return "is older than a change of what it proves: it ran at " + ran.Commit, c.count(since+"..HEAD") > staleMost
}

// What it says of a small repository, as commits are added.
func TestOutdatedProofs(t *testing.T) {
	t.Parallel()
	c := checkout(t.TempDir())
	run := func(args ...string) string {
		t.Helper()
		return testkit.Need(c.git(append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"}, args...)...))(t)
	}
	commit := func(file, text string) string {
		t.Helper()
		testkit.WriteFile(t, filepath.Join(string(c), file), text)
		run("add", file)
		run("commit", "-q", "-m", "x")
		return run("rev-parse", "HEAD")
	}
	run("init", "-q", "-b", "main")
	first := commit(engineList, "spark-a ./lab/test/spark TestA\n")
	line := func(result, commit string) engineLine {
		return engineLine{Name: "spark-a", Date: "2026-01-01T00:00:00Z", Commit: commit, Result: result, Reason: map[bool]string{true: "no JDK"}[result == "not run"]}
	}
	check := func(when string, lines []engineLine, why string, red bool) {
		t.Helper()
		if got, r := c.outdated("spark-a", lines); r != red || !strings.Contains(got, why) || (why == "") != (got == "") {
			t.Errorf("%s: %q, red %v; want %q, %v", when, got, r, why, red)
		}
	}
	passed := []engineLine{line("passed", first)}
	check("no line", nil, "never run", false)
	check("not run", []engineLine{line("not run", first)}, "never run (no JDK)", false)
	check("fresh", passed, "", false)
	check("not run after it passed", append(passed, line("not run", first)), "", false)
	check("failed", append(passed, line("failed", first)), "failed", true)
	check("rebased", []engineLine{line("passed", strings.Repeat("0", 40))}, "not in this repository", false)
	commit("scheduler/spark/a_test.go", "package spark\n")
	commit("hooks/spark/README.md", "text\n")
	commit("hooks/hadoop/pom.xml", "<project/>\n")
	check("another engine, a page, a test", passed, "", false)
	changed := commit("lab/spark/a.go", "package spark\n")
	check("changed", passed, "older", false)
	check("proven again", append(passed, line("passed", changed)), "", false)
	for range staleMost {
		run("commit", "-q", "--allow-empty", "-m", "x")
	}
	check("30 commits later", passed, "older", false)
	check("never run", nil, "never run", true)
	run("commit", "-q", "--allow-empty", "-m", "x")
	check("31 commits later", passed, "older", true)
	check("still proven", append(passed, line("passed", changed)), "", false)
	run("rm", "-q", "lab/spark/a.go")
	run("commit", "-q", "-m", "x")
	check("taken back", passed, "", false)
}

func TestEngineLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"a","date":"2","commit":"c","versions":"v","result":"passed","seconds":3}` + "\n" +
			`{"name":"a","date":"1","commit":"c","versions":"","result":"not run","seconds":0,"reason":"no JDK"}`: "",
		`{"name":"a","result":"skipped"}`:         "line 1",
		`{"name":"a","result":"not run"}`:         "line 1",
		`{"name":"a","result":"passed","took":3}`: "line 1",
		`<<<<<<< HEAD`: "line 1",
	} {
		lines, err := readEngineLines([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && lines[len(lines)-1].Date != "2" {
			t.Errorf("%s: %v, %v", text, lines, err)
		}
	}
}
