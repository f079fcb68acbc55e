// Claims: every bug in docs/robustness.md has a make target that reproduces it, and the
// reproducer exists.
package headroom_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryBugHasATarget(t *testing.T) {
	t.Parallel()
	needLab(t)
	list, err := os.ReadFile("lab/test/repro.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/robustness.md")
	if err != nil {
		t.Fatal(err)
	}
	var told, listed []string
	_, bugs, _ := strings.Cut(string(page), "\n## Bugs that were found\n")
	for _, m := range regexp.MustCompile("(?m)^- `([a-z-]+)`: \\S").FindAllStringSubmatch(bugs, -1) {
		told = append(told, m[1])
	}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		listed = append(listed, f[0])
		switch {
		case !slices.Contains(told, f[0]):
			t.Errorf("docs/robustness.md has no line for %s", f[0])
		case len(f) == 2 && f[1] == "seed":
			if _, err := os.Stat(filepath.Join("lab/simulation/testdata/seeds", f[0]+".json")); err != nil {
				t.Error(err)
			}
		case len(f) == 3 && strings.HasPrefix(f[1], "hooks/"): // Class#method of a plug-in
			class, method, _ := strings.Cut(f[2], "#")
			path := filepath.Join(f[1], "src/test/java/headroom", filepath.Base(f[1]), class+".java")
			if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "void "+method+"(") {
				t.Errorf("lab/test/repro.txt: %s: no such test: %v", strings.TrimSpace(line), err)
			}
		case len(f) != 3 || !hasTest(t, f[1], f[2]):
			t.Errorf("lab/test/repro.txt: %s: no such test", strings.TrimSpace(line))
		}
	}
	for _, name := range told {
		if !slices.Contains(listed, name) {
			t.Errorf("docs/robustness.md: lab/test/repro.txt does not list %s", name)
		}
	}
}

// hasTest reports whether a package has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	return slices.ContainsFunc(tracked(t), func(f string) bool {
		if !strings.HasSuffix(f, "_test.go") || path.Dir(f) != path.Clean(folder) {
			return false
		}
		src, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(src), "\nfunc "+name+"(")
	})
}
