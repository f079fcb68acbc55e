// Claims: what a program can write of a page is written by it and fresh; the pages that
// people write have a bounded number of words.
package headroom_test

import (
	"fmt"
	"go/doc"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// generatedPart is a part of a page between the line that names its test and the line that ends it.
func generatedPart() *regexp.Regexp {
	return regexp.MustCompile(`(?s)(<!-- UPDATE=1 go test -run (\w+) \. -->\n).*?(<!-- end -->\n)`)
}

// checkParts compares the parts of a page that a test writes, in their order, with their texts. UPDATE=1 rewrites them.
func checkParts(t *testing.T, page, test string, parts ...string) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	want := generatedPart().ReplaceAllStringFunc(string(data), func(old string) string {
		m := generatedPart().FindStringSubmatch(old)
		if m[2] != test {
			return old
		}
		if found++; found > len(parts) {
			return old
		}
		return m[1] + parts[found-1] + m[3]
	})
	switch {
	case found != len(parts):
		t.Fatalf("%s has %d parts of %s, want %d", page, found, test, len(parts))
	case want == string(data):
	case os.Getenv("UPDATE") == "":
		t.Fatalf("%s is not fresh: UPDATE=1 go test -run %s .", page, test)
	default:
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackagesPage(t *testing.T) {
	t.Parallel()
	const page = "docs/packages.md"
	_, pkgs := read(t)
	var product, outside []string
	for _, path := range slices.Sorted(maps.Keys(pkgs)) {
		if folder := pkgs[path].folder(); folder == "lab" {
			outside = append(outside, path)
		} else if folder != "" {
			product = append(product, path)
		}
	}
	if len(outside) == 0 {
		t.Skip("a copy without the lab")
	}
	want := "<!-- Generated: UPDATE=1 go test -run TestPackagesPage . -->\n\n# Packages\n\n" +
		"For people who change Headroom: each package, and the first sentence of its comment. [architecture.md](architecture.md#the-packages)\n" +
		"has the layers and their rules.\n\n" + packageTable(pkgs, product) +
		"\n## The lab\n\nA module of its own, which the product never imports.\n\n" + packageTable(pkgs, outside)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("%s is not fresh (%v): UPDATE=1 go test -run TestPackagesPage .", page, err)
	}
}

// packageTable has a row for each package: its path and the first sentence of its comment.
func packageTable(pkgs map[string]*pkg, paths []string) string {
	var b strings.Builder
	b.WriteString("| package | what it is |\n| --- | --- |\n")
	for _, path := range paths {
		sentence := new(doc.Package).Synopsis(pkgs[path].doc)
		for _, opening := range []string{"Package " + pkgs[path].name + " ", "Command " + filepath.Base(path) + " "} {
			sentence = strings.TrimPrefix(sentence, opening)
		}
		if strings.Count(sentence, "(") > strings.Count(sentence, ")") { // a full stop inside of parentheses
			sentence, _, _ = strings.Cut(sentence, " (")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", path, strings.ReplaceAll(strings.TrimSuffix(sentence, "."), "|", `\|`))
	}
	return b.String()
}

// The index of the runbooks has a row for each alert, with the first sentence of its page.
func TestRunbookIndex(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| alert | meaning | severity |\n| --- | --- | --- |\n")
	seen := map[string]bool{}
	for _, a := range readAlerts(t) {
		if seen[a.Alert] {
			continue
		}
		seen[a.Alert] = true
		page, err := os.ReadFile(pageOf(a))
		if err != nil {
			t.Fatal(err)
		}
		_, meaning, _ := strings.Cut(string(page), "## What it means\n\n")
		sentence, _, _ := strings.Cut(strings.Join(strings.Fields(meaning), " "), ". ")
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s |\n", a.Alert, a.Labels["code"], sentence, a.Labels["severity"])
	}
	checkParts(t, "docs/runbooks/README.md", "TestRunbookIndex", b.String())
}

// Each promise has a row, and each row names a law, a sabotage and a test on real processes that exist.
func TestPromiseTable(t *testing.T) {
	t.Parallel()
	const promises = 13
	page, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Join(tracked(t), "\n") + "\n"
	sabotages, err := os.ReadFile("lab/simulation/sabotages.go")
	if err != nil {
		t.Skip("a copy without the lab")
	}
	rows := regexp.MustCompile(`(?m)^\| P(\d+) [^|]+\|([^|]+)\|([^|]+)\|([^|]+)\|$`).FindAllStringSubmatch(string(page), -1)
	if len(rows) != promises {
		t.Errorf("docs/testing.md has %d promises, want %d", len(rows), promises)
	}
	for n, row := range rows {
		if row[1] != strconv.Itoa(n+1) {
			t.Errorf("docs/testing.md: P%s comes after P%d", row[1], n)
		}
		for _, cell := range row[2:] {
			names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1)
			if len(names) == 0 {
				t.Errorf("docs/testing.md: P%s: a cell names no test", row[1])
			}
			for _, m := range names {
				name := m[1]
				found := strings.Contains("\n"+files, "\n"+name+"/") || strings.Contains(files, "/"+name+"\n") || strings.Contains(string(sabotages), `"`+name+`"`)
				if strings.HasPrefix(name, "Test") {
					found = hasTest(t, "lab/test/nspawn", name) || hasTest(t, "lab/test/netns", name)
				}
				if !found {
					t.Errorf("docs/testing.md: P%s: there is no %s", row[1], name)
				}
			}
		}
	}
}

// wordsMost bounds the words that people write and read in docs: without manual pages,
// records of decisions, and the pages and parts that programs write.
const wordsMost = 45000

func TestDocsWords(t *testing.T) {
	t.Parallel()
	written := regexp.MustCompile(`(?s)<!-- (?:UPDATE=1|(?:\w+: )?generated)[^\n]* -->\n.*?<!-- end -->\n`) // by programs
	counts, all := map[string]int{}, 0
	for f, text := range markdown(t) {
		page, below := strings.CutPrefix(f, "docs/")
		if !below || strings.HasPrefix(page, "adr/") || page == "api.md" || strings.HasPrefix(text, "<!-- Generated") {
			continue
		}
		counts[f] = len(strings.Fields(written.ReplaceAllString(text, "")))
		all += counts[f]
	}
	if all > wordsMost {
		t.Errorf("the pages of docs have %d words, at most %d: %v", all, wordsMost, counts)
	}
	t.Logf("%d words in %d pages", all, len(counts))
	for _, f := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] }) {
		t.Logf("%6d %s", counts[f], filepath.Base(f))
	}
}
