package walk

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"headroom/internal/testkit"
)

// A step is a fenced block of a page, or one example of a manual page.
type step struct {
	page     string
	line     int    // of the block's first line
	language string // sh or yaml; empty: output, which is only shown
	text     string
	machines []string // where it runs; none: on the page's first machine
	notRun   string   // why it does not run
}

// workstation is the machine that runs blocks without a mark.
const workstation = "operator"

// Marks that stand in the line before a block. They are comments, so readers do not see them.
func marks() (notRun, on *regexp.Regexp) {
	return regexp.MustCompile(`^<!-- not run: (.+) -->$`), regexp.MustCompile(`^<!-- on ([a-z0-9 ]+) -->$`)
}

// blocks reads the fenced blocks of a page, in order.
func blocks(page, text string) []step {
	notRun, on := marks()
	var (
		found  []step
		marked step
		open   *step
		indent string
	)
	for n, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case open != nil && trimmed == "```":
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case strings.HasPrefix(trimmed, "```"):
			indent = line[:strings.Index(line, "`")]
			open = &step{page: page, line: n + 2, language: strings.TrimPrefix(trimmed, "```"), machines: marked.machines, notRun: marked.notRun}
			marked = step{}
		case notRun.MatchString(trimmed):
			marked.notRun = notRun.FindStringSubmatch(trimmed)[1]
		case on.MatchString(trimmed):
			marked.machines = strings.Fields(on.FindStringSubmatch(trimmed)[1])
		case trimmed != "":
			marked = step{}
		}
	}
	return found
}

// readPage returns the blocks of a file of the repository.
func readPage(tb testing.TB, page string) []step {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(root, page))
	testkit.Check(tb, err)
	return blocks(page, string(data))
}

// machinesOf lists the machines that a page names, the workstation first.
func machinesOf(steps []step) []string {
	named := map[string]bool{}
	for _, s := range steps {
		for _, m := range s.machines {
			named[m] = true
		}
	}
	return append([]string{workstation}, slices.Sorted(maps.Keys(named))...)
}

// examples reads the EXAMPLES of a manual page of section 8 and those of its commands: one step each.
func examples(tb testing.TB, page string) []step {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(root, page))
	testkit.Check(tb, err)
	plain := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(ti`, "~", `\(ha`, "^", `\(dq`, `"`, `\&`, "", `\e`, `\`)
	var found []step
	shown, synopsis := false, false
	for n, line := range strings.Split(string(data), "\n") {
		switch {
		case strings.HasPrefix(line, ".SH") || strings.HasPrefix(line, ".SS"):
			synopsis = line == ".SH SYNOPSIS"
		case line == ".nf" || line == ".fi":
			shown = line == ".nf"
		case shown && !synopsis && line != "" && !strings.HasPrefix(line, "."):
			found = append(found, step{page: page, line: n + 1, language: "sh", text: plain.Replace(line) + "\n"})
		}
	}
	return found
}

// configuration turns a YAML block into commands that write its file and check it. Its first line names the file; a
// later block of the same file replaces the keys that it holds.
func configuration(s step, written map[string]map[string]any) (step, error) {
	name := regexp.MustCompile(`^# (/etc/headroom/(coordinator|powerd|scheduler)\.yaml)\n`).FindStringSubmatch(s.text)
	if name == nil {
		return s, fmt.Errorf("%s:%d: the first line of a YAML block names its file, # /etc/headroom/PROGRAM.yaml", s.page, s.line)
	}
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(s.text), &keys); err != nil {
		return s, fmt.Errorf("%s:%d: %w", s.page, s.line, err)
	}
	text := s.text
	id := strings.Join(append(s.machines, name[1]), " ")
	if before := written[id]; before != nil {
		keys = merged(before, keys)
		data, err := yaml.Marshal(keys)
		if err != nil {
			return s, fmt.Errorf("%s:%d: %w", s.page, s.line, err)
		}
		text = string(data)
	}
	written[id] = keys
	s.text = fmt.Sprintf("cat >%s <<'END'\n%sEND\n%s config check --config %[1]s\n", name[1], text, name[2])
	return s, nil
}

// merged is before with the keys of after over it.
func merged(before, after map[string]any) map[string]any {
	out := maps.Clone(before)
	for key, value := range after {
		inner, isMap := value.(map[string]any)
		if outer, wasMap := out[key].(map[string]any); isMap && wasMap {
			value = merged(outer, inner)
		}
		out[key] = value
	}
	return out
}
