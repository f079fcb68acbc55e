// Claim: every test that the threat model names exists.
package headroom_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestThreatModelNamesTests(t *testing.T) {
	t.Parallel()
	needLab(t)
	page, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
	}
	if len(named) < 20 {
		t.Fatalf("the page names %d tests", len(named))
	}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, "_test.go") {
			continue
		}
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(src), -1) {
			delete(named, m[1])
		}
	}
	for name := range named {
		t.Errorf("docs/threat-model.md names %s, which does not exist", name)
	}
}
