// Claims: every lesson of docs/lessons.md has an entry with tests; each test exists in
// that package and names its lesson in its comment; and every test that names a
// lesson is listed in the page.
package headroom_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lessonsPage is where the lessons are.
const lessonsPage = "docs/lessons.md"

// lessonCount is how many there are.
const lessonCount = 21

// guard is one test: its package's folder and its name.
type guard struct{ folder, name string }

func (g guard) String() string { return g.folder + "." + g.name }

// lessonsNamed are the tests that each entry of the page names.
func lessonsNamed(t *testing.T) map[int][]guard {
	t.Helper()
	text, err := os.ReadFile(lessonsPage)
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`^## ([0-9]+)\. \S`)
	named := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)[A-Za-z0-9]+)(?:/[^`]+)?`")
	found, now := map[int][]guard{}, 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if m := heading.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil || n != now+1 {
				t.Errorf("%s: %q comes after lesson %d", lessonsPage, line, now)
			}
			now = n
			found[n] = nil
		}
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			found[now] = append(found[now], guard{m[1], m[2]})
		}
	}
	return found
}

// lessonsGuarded are the lessons that the comments of each test name, for all tests.
func lessonsGuarded(t *testing.T) map[guard][]int {
	t.Helper()
	all := map[guard][]int{}
	for _, file := range tracked(t) {
		if !isSource(file) || !strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && isTest(fn) {
				all[guard{path.Dir(file), fn.Name.Name}] = lessonsOf(f, fn)
			}
		}
	}
	return all
}

func isTest(fn *ast.FuncDecl) bool {
	return fn.Recv == nil && (strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz"))
}

// lessonsOf are the lessons that the comments on and in a function name.
func lessonsOf(f *ast.File, fn *ast.FuncDecl) []int {
	from := fn.Pos()
	if fn.Doc != nil {
		from = fn.Doc.Pos()
	}
	said := regexp.MustCompile(`\bLesson ([0-9]+):`)
	numbers := []int{}
	for _, group := range f.Comments {
		if group.Pos() < from || group.End() > fn.End() {
			continue
		}
		for _, m := range said.FindAllStringSubmatch(group.Text(), -1) {
			n, _ := strconv.Atoi(m[1]) // digits
			numbers = append(numbers, n)
		}
	}
	return numbers
}

func TestEveryLessonIsGuarded(t *testing.T) {
	t.Parallel()
	needLab(t)
	named, guarded := lessonsNamed(t), lessonsGuarded(t)
	if got := slices.Max(slices.Collect(maps.Keys(named))); got != lessonCount || len(named) != lessonCount {
		t.Errorf("%s has %d entries up to %d, want %d", lessonsPage, len(named), got, lessonCount)
	}
	for n, tests := range named {
		if len(tests) == 0 {
			t.Errorf("%s: lesson %d names no test", lessonsPage, n)
		}
		for _, g := range tests {
			said, ok := guarded[g]
			switch {
			case !ok:
				t.Errorf("%s: lesson %d names %v, which there is not", lessonsPage, n, g)
			case !slices.Contains(said, n):
				t.Errorf("%v is named by lesson %d and has no comment \"Lesson %d: ...\"", g, n, n)
			}
		}
	}
	for g, numbers := range guarded {
		for _, n := range numbers {
			if !slices.Contains(named[n], g) {
				t.Errorf("%v says that it guards lesson %d, which does not name it in %s", g, n, lessonsPage)
			}
		}
	}
}

// A lesson without a number leads nowhere.
func TestLessonsAreNumbered(t *testing.T) {
	t.Parallel()
	said := regexp.MustCompile(`// *[Ll]esson(?: ([0-9]+))?:`)
	for f, text := range texts(t) {
		if filepath.Ext(f) != ".go" {
			continue
		}
		for _, m := range said.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > lessonCount {
				t.Errorf("%s: %q is no lesson of %s", f, m[0], lessonsPage)
			}
		}
	}
}
