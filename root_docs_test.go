// Claims: tracked files name no machine and no registry, use the words of the glossary
// and leave nothing for later; links resolve; documented commands exist; tables are
// complete; the README is short and every page is in the index.
package headroom_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"headroom/internal/cli"
)

// texts are the tracked files that people read, with their content.
func texts(t *testing.T) map[string]string {
	t.Helper()
	content := map[string]string{}
	for _, f := range tracked(t) {
		if strings.HasPrefix(f, "internal/pins/") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if utf8.Valid(data) && !bytes.ContainsRune(data, 0) && !isGenerated(data) && filepath.Ext(f) != ".sum" {
			content[f] = string(data)
		}
	}
	return content
}

// A path of somebody's machine starts a word; n01/root/sys does not.
func machinePath() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s"'=(:` + "`" + `])/(?:home|root|work|Users)/[A-Za-z0-9._-]+`)
}

// Registries and mirrors belong into the environment, not into the project.
func registryHost() *regexp.Regexp {
	return regexp.MustCompile(`proxy\.golang\.` + `org|sum\.golang\.` + `org|registry\.npmjs\.` + `org|repo1\.maven\.` + `org|files\.pythonhosted\.` + `org|arti` + `factory`)
}

func TestNoMachinePathsNoRegistries(t *testing.T) {
	t.Parallel()
	path, host := machinePath(), registryHost()
	for f, text := range texts(t) {
		for n, line := range strings.Split(text, "\n") {
			if found := path.FindString(line); found != "" {
				t.Errorf("%s:%d: path of a machine: %s", f, n+1, strings.TrimSpace(found))
			}
			if found := host.FindString(line); found != "" {
				t.Errorf("%s:%d: host of a registry: %s", f, n+1, found)
			}
		}
	}
}

func TestNothingIsLeftForLater(t *testing.T) {
	t.Parallel()
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for f, text := range texts(t) {
		if found := later.FindString(text); found != "" && f != "LICENSE" {
			t.Errorf("%s: %s", f, found)
		}
	}
}

// bannedWords maps words to the glossary's word for the same thing.
func bannedWords() map[string]string {
	return map[string]string{"throttle quota": "cap", "allocation": "cap, target or container", "power limit": "cap (limit is what hardware holds)"}
}

// Operators read string literals: errors, help texts, tables.
func TestOneWordForOneThing(t *testing.T) {
	t.Parallel()
	fset, pkgs := read(t)
	for _, p := range pkgs {
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					checkWords(t, p, fset.Position(lit.Pos()), lit.Value)
				}
				return true
			})
		}
	}
}

func checkWords(t *testing.T, p *pkg, at token.Position, text string) {
	t.Helper()
	// Hardware and firmware have power limits.
	hardware := layers()[p.folder()] == device || strings.Contains(text, "BIOS") || strings.Contains(text, "RAPL")
	// "Allocation file" is Hadoop's name; properties of Hadoop and Spark contain the word too.
	text = regexp.MustCompile(`(?i)allocation[ _-]file|spark\.dynamicAllocation\.\w+|\ballocations\b|[\w.-]*[.-]allocation\b[\w.-]*`).ReplaceAllString(text, "")
	for word, instead := range bannedWords() {
		if strings.Contains(strings.ToLower(text), word) && (word != "power limit" || !hardware) {
			t.Errorf("%s: %q; the word is %s", at, word, instead)
		}
	}
}

// markdown returns the documents with their code blocks.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for f, text := range texts(t) {
		if filepath.Ext(f) == ".md" {
			docs[f] = text
		}
	}
	return docs
}

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	needLab(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence := regexp.MustCompile("(?s)```.*?```")
	docs := markdown(t)
	for f, text := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := f
			if path != "" {
				target = filepath.Join(filepath.Dir(f), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: no such file", f, m[1])
			} else if anchor != "" && !anchors(docs[target])[anchor] {
				t.Errorf("%s: link to %s: no such heading", f, m[1])
			}
		}
	}
}

// anchors are the headings as links name them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		names[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			default:
				return -1
			}
		}, strings.TrimSpace(title))] = true
	}
	return names
}

func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	needLab(t)
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?m)(?:^\\s*(?:\\$ )?|`)make ([a-z][a-z-]*)")
	program := regexp.MustCompile("(?m)(?:^\\s*(?:\\$ )?|`)bin/([a-z]+)")
	for f, text := range markdown(t) {
		for _, m := range shown.FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.HasPrefix(target, "repro-") {
				target = "repro-%" // TestEveryBugHasATarget knows their names
			}
			if !bytes.Contains(makefile, []byte("\n"+target+":")) {
				t.Errorf("%s shows `make %s`: no such target", f, m[1])
			}
		}
		for _, m := range program.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc([]string{"cmd", "lab/cmd"}, func(in string) bool { _, err := os.Stat(filepath.Join(in, m[1], "main.go")); return err == nil }) {
				t.Errorf("%s shows bin/%s: no such program", f, m[1])
			}
		}
	}
}

// rpcAddresses are what people pass or configure as RPC addresses of coordinators.
func rpcAddresses() *regexp.Regexp {
	return regexp.MustCompile(`(?:--(?:coordinators|addr|rpc)[= ]|coordinators: |HEADROOM_ADDR=|\brpc: )\S+(?:, \S+)*`)
}

// Servers answer calls on port 7400; 7401 is raft's, which no other program may dial.
func TestAddressesOfCoordinatorsNameTheirPort(t *testing.T) {
	t.Parallel()
	addresses, named := rpcAddresses(), map[string]bool{}
	for f, text := range texts(t) {
		for n, line := range strings.Split(strings.ReplaceAll(text, `\-`, "-"), "\n") {
			for _, found := range addresses.FindAllString(line, -1) {
				if named[f] = named[f] || strings.Contains(found, ":7400"); strings.Contains(strings.Split(found, "raft:")[0], ":7401") {
					t.Errorf("%s:%d: port 7401 is raft's: %s", f, n+1, found)
				}
			}
		}
	}
	for _, f := range []string{"deploy/systemd/headroom-master.service", "scheduler/command/master.go", "scheduler/config.go", "docs/dispatch.md", "docs/man/scheduler.8", "docs/secure.md"} {
		if !named[f] {
			t.Errorf("%s names no address of a coordinator", f)
		}
	}
}

// A table is a header, a line of dashes and rows, without a blank line or a sentence between them.
func TestTablesAreWhole(t *testing.T) {
	t.Parallel()
	dashes := regexp.MustCompile(`^\|( *:?-+:? *\|)+$`)
	fence := regexp.MustCompile("(?s)```.*?```")
	for f, text := range markdown(t) {
		text = fence.ReplaceAllStringFunc(text, func(block string) string { return strings.Repeat("\n", strings.Count(block, "\n")) })
		lines := strings.Split(text, "\n")
		for n := 0; n < len(lines); n++ {
			first := n
			for n < len(lines) && strings.HasPrefix(lines[n], "|") {
				n++
			}
			if first == n {
				continue
			}
			if table := lines[first:n]; len(table) < 3 || !dashes.MatchString(table[1]) {
				t.Errorf("%s:%d: a table needs a header, a line of dashes and rows below each other", f, first+1)
			}
		}
	}
}

// readmeMost is what a reader takes in before deciding to go on, in bytes.
const readmeMost = 7000

func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	info, err := os.Stat("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > readmeMost {
		t.Errorf("README.md has %d bytes, at most %d", info.Size(), readmeMost)
	}
}

// An index names every page of its folder, or the folder below that the page is in.
func TestEveryPageIsInTheIndex(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"docs/", "lab/docs/"} {
		index, err := os.ReadFile(of + "README.md")
		if err != nil {
			t.Fatal(err)
		}
		for f := range markdown(t) {
			page, below := strings.CutPrefix(f, of)
			folder, _, inFolder := strings.Cut(page, "/")
			switch {
			case !below || page == "README.md":
			case inFolder:
				if !bytes.Contains(index, []byte("]("+folder)) {
					t.Errorf("%sREADME.md does not link %s", of, of+folder)
				}
			case !bytes.Contains(index, []byte("]("+page+")")):
				t.Errorf("%sREADME.md does not link %s", of, of+page)
			}
		}
	}
}

// Blocks of the walked pages that lab/test/walk does not run, and how many of each reason.
func TestBlocksThatDoNotRun(t *testing.T) {
	t.Parallel()
	const most = 20
	reasons := regexp.MustCompile(`^(hardware|the suite itself|over two minutes|needs .+ installed|another machine|installs a package)$`)
	mark := regexp.MustCompile(`(?m)^ *<!-- not run: (.*) -->$`)
	found := 0
	for f, text := range markdown(t) {
		for _, m := range mark.FindAllStringSubmatch(text, -1) {
			found++
			if !reasons.MatchString(m[1]) {
				t.Errorf("%s: %q is no reason not to run a block", f, m[1])
			}
		}
	}
	if found > most {
		t.Errorf("%d blocks do not run, at most %d", found, most)
	}
}

func TestReadmeShowsTheTwoCommands(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"make demo", "make test"} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("README.md does not show %q", want)
		}
	}
}

// .ci/run runs the command that the README shows, and the licence exists.
func TestFrameIsComplete(t *testing.T) {
	t.Parallel()
	for f, want := range map[string]string{".ci/run": "make --no-print-directory test", "LICENSE": "Apache License", "CONTRIBUTING.md": "make check"} {
		data, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(data, []byte(want)) {
			t.Errorf("%s: %q is missing (%v)", f, want, err)
		}
	}
}

func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("docs/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{
		cli.ExitOK, cli.ExitFailed, cli.ExitUsage, cli.ExitUnreachable, cli.ExitDenied, cli.ExitConflict, cli.ExitRefused,
		cli.ExitUnknown, cli.ExitDegraded, cli.ExitChanges, cli.ExitInterrupted,
	} {
		if !bytes.Contains(data, []byte("\n| "+strconv.Itoa(code)+" |")) {
			t.Errorf("docs/exit-codes.md has no line for %d", code)
		}
	}
}

func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile("docs/adr/0003-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`)
	for _, m := range direct.FindAllSubmatch(mod, -1) {
		if !bytes.Contains(record, fmt.Appendf(nil, "`%s`", m[1])) {
			t.Errorf("docs/adr/0003-dependencies.md does not explain %s", m[1])
		}
	}
}
