// Claims: the house has a size: no folder and no large package has more lines than rooms.txt allows, and no
// word that plain English avoids is in more comments than words.txt allows; both lists only fall.
package headroom_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

const (
	roomsFile, wordsFile = "rooms.txt", "words.txt"
	// roomLarge is the number of lines from which a package has a ceiling of its own.
	roomLarge = 1500
	// slack is how far a ceiling may be above the count before the list must be lowered, in lines and in words.
	slackLines, slackWords = 200, 20
)

// A ceiling is one line of a list: what it counts, the highest count, and, where it was raised, the reason.
type ceiling struct {
	name   string
	most   int
	reason string
}

// ceilings reads a list: NAME NUMBER [REASON...], with comments behind #.
func ceilings(text string) (all []ceiling, err error) {
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, fmt.Errorf("line %d: want NAME NUMBER [REASON]", n+1)
		}
		most, err := strconv.Atoi(fields[1])
		if err != nil || most < 0 {
			return nil, fmt.Errorf("line %d: %q is no count", n+1, fields[1])
		}
		all = append(all, ceiling{fields[0], most, strings.Join(fields[2:], " ")})
	}
	return all, nil
}

// checkCeilings compares counts with a list and returns what is wrong. A count without a line has no room.
func checkCeilings(counts map[string]int, list []ceiling, slack int) (wrong []string) {
	for _, c := range list {
		got, there := counts[c.name]
		switch {
		case !there:
			wrong = append(wrong, c.name+": nothing is counted under this name; remove its line")
		case got > c.most:
			wrong = append(wrong, fmt.Sprintf("%s: %d, at most %d; make it smaller, or raise the number with a reason behind it", c.name, got, c.most))
		case got < c.most-slack:
			wrong = append(wrong, fmt.Sprintf("%s: %d; lower its ceiling of %d (UPDATE=1 go test -run %s . writes it)", c.name, got, c.most, "TestRooms\\|TestWords"))
		}
	}
	for name, got := range counts {
		if !slices.ContainsFunc(list, func(c ceiling) bool { return c.name == name }) {
			wrong = append(wrong, fmt.Sprintf("%s: %d, and it has no line", name, got))
		}
	}
	return wrong
}

// raised returns the ceilings that rose since an earlier list without another reason.
func raised(before, after []ceiling) (names []string) {
	for _, c := range after {
		i := slices.IndexFunc(before, func(b ceiling) bool { return b.name == c.name })
		if i >= 0 && c.most > before[i].most && (c.reason == "" || c.reason == before[i].reason) {
			names = append(names, c.name)
		}
	}
	return names
}

// lowered is a list with each ceiling at its count; new names follow, reasons stay where the count rose.
func lowered(counts map[string]int, list []ceiling) []ceiling {
	var all []ceiling
	for name, n := range counts {
		c := ceiling{name: name, most: n}
		if i := slices.IndexFunc(list, func(c ceiling) bool { return c.name == name }); i >= 0 {
			c.reason = list[i].reason
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b ceiling) int {
		return cmp.Or(cmp.Compare(strings.Count(a.name, "/"), strings.Count(b.name, "/")), cmp.Compare(a.name, b.name))
	})
	return all
}

// holdCeilings checks a list against the counts, and against the list of the commit before its last change.
func holdCeilings(t *testing.T, file string, counts map[string]int, slack int) {
	t.Helper()
	text := string(testkit.Need(os.ReadFile(file))(t))
	list, err := ceilings(text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if os.Getenv("UPDATE") != "" {
		head := text[:max(0, strings.Index(text, "\n\n"))]
		for i, c := range lowered(counts, list) {
			if i == 0 {
				head += "\n\n"
			}
			head += strings.TrimRight(fmt.Sprintf("%-28s %6d  %s", c.name, c.most, c.reason), " ") + "\n"
		}
		testkit.Check(t, os.WriteFile(file, []byte(head), 0o644)) //nolint:gosec // as in every checkout
		return
	}
	for _, w := range checkCeilings(counts, list, slack) {
		t.Errorf("%s: %s", file, w)
	}
	here := checkout(".")
	last, err := here.git("log", "-1", "--format=%H", "--", file)
	if err != nil || last == "" {
		return // an archive, or not committed yet
	}
	for _, at := range []string{"HEAD", last + "~1"} {
		if old, err := here.git("show", at+":"+file); err == nil {
			before, err := ceilings(old)
			testkit.Check(t, err)
			for _, name := range raised(before, list) {
				t.Errorf("%s: %s rose since %s without a new reason", file, name, at)
			}
		}
	}
}

// rooms counts the lines of Go, without tests and generated code: of all that ships ("product"), of each top-level
// folder ("agent/...") and of each large package ("agent").
func rooms(t *testing.T) map[string]int {
	t.Helper()
	folders, packages := map[string]int{}, map[string]int{}
	for _, file := range tracked(t) {
		if !isSource(file) || strings.HasSuffix(file, "_test.go") {
			continue
		}
		src := testkit.Need(os.ReadFile(file))(t)
		if isGenerated(src) {
			continue
		}
		n := strings.Count(string(src), "\n")
		top, _, below := strings.Cut(file, "/")
		if below {
			folders[top+"/..."] += n
		}
		if top != "lab" {
			folders["product"] += n
		}
		packages[filepath.Dir(file)] += n
	}
	for name, n := range packages {
		if n > roomLarge {
			folders[name] = n
		}
	}
	return folders
}

func TestRooms(t *testing.T) {
	t.Parallel()
	needLab(t)
	holdCeilings(t, roomsFile, rooms(t), slackLines)
}

// avoided are the words that comments avoid, by the name of their line.
func avoided() map[string]*regexp.Regexp {
	all := map[string]*regexp.Regexp{}
	for _, w := range []string{"tells?", "told", "says?", "said", "knows?", "asks?", "asked", "nobody", "whoever", "somebody", "is to", "are to", "what came of"} {
		all[strings.ReplaceAll(strings.TrimSuffix(w, "s?"), " ", "-")] = regexp.MustCompile(`(?i)\b` + w + `\b`)
	}
	return all
}

// commentText is the text of a line's comment, "" without one. An address such as http:// is none.
var commentText = regexp.MustCompile(`(?:^|\s)//(.*)$`)

func TestWords(t *testing.T) {
	t.Parallel()
	needLab(t)
	counts, words := map[string]int{}, avoided()
	for _, file := range tracked(t) {
		if !isSource(file) {
			continue
		}
		room := "product"
		if strings.HasPrefix(file, "lab/") {
			room = "lab"
		}
		src := testkit.Need(os.ReadFile(file))(t)
		if isGenerated(src) {
			continue
		}
		for line := range strings.Lines(string(src)) {
			m := commentText.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m == nil {
				continue
			}
			for word, pattern := range words {
				counts[room+"/"+word] += len(pattern.FindAllString(m[1], -1))
			}
		}
	}
	holdCeilings(t, wordsFile, counts, slackWords)
}

func TestCeilings(t *testing.T) {
	t.Parallel()
	list, err := ceilings("# a comment\nlab 100\nunits 10 a new unit\n")
	testkit.Check(t, err)
	for name, c := range map[string]struct {
		counts map[string]int
		wrong  int
	}{
		"fit": {map[string]int{"lab": 95, "units": 10}, 0}, "grown": {map[string]int{"lab": 101, "units": 10}, 1},
		"shrunk": {map[string]int{"lab": 80, "units": 10}, 1}, "gone": {map[string]int{"lab": 100}, 1},
		"new": {map[string]int{"lab": 100, "units": 10, "more": 1}, 1},
	} {
		if got := checkCeilings(c.counts, list, 10); len(got) != c.wrong {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, want := range map[string]int{"lab 101\n": 1, "lab 101 for a reason\n": 0, "lab 99\n": 0, "units 11 a new unit\n": 1, "units 11 another\n": 0} {
		if got := raised(list, testkit.Need(ceilings(text))(t)); len(got) != want {
			t.Errorf("%q: raised %v", text, got)
		}
	}
	for _, text := range []string{"lab\n", "lab many\n", "lab -1\n"} {
		if _, err := ceilings(text); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
}
