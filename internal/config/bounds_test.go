// Claims: no document, however it is made, takes more than a moment and some memory to be
// read or refused; what is refused for a bound says where.
package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/cli"
	"headroom/units"
)

// hostile are documents of about n bytes that cost the YAML library most.
func hostile(n int) map[string]string {
	times := func(s string) string { return strings.Repeat(s, n/len(s)) }
	grow := func(line func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	merge := "a0: &a0 {k: v}\n"
	for i := 1; i < 30; i++ {
		merge += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d], k%d: v}\n", i, i, i-1, i-1, i)
	}
	return map[string]string{
		"brackets":      "name: " + times("["),
		"braces":        "name: " + times("{a: "),
		"dashes":        "name:\n" + times("- ") + "a",
		"question":      times("? ") + "a",
		"backslashes":   "name: \"" + times("\\"),
		"quotes":        "name: '" + times("'"),
		"anchors":       "name: " + times("&a ") + "b",
		"aliases":       "name: " + times("*a "),
		"merges":        merge,
		"commas":        "name: [" + times(",") + "]",
		"comments":      times("#\n") + "name: x",
		"keys":          grow(func(i int) string { return fmt.Sprintf("a%d:\n", i) }),
		"blocks":        grow(func(i int) string { return strings.Repeat(" ", i) + "a:\n" }),
		"folded blanks": "name: >\n" + times(" \n"),
		"literal":       "name: |\n" + times("  x\n"),
		"documents":     times("---\n"),
		"entries":       "name:\n" + times("- a\n"),
		"tags":          "name: " + times("!a "),
		"colons":        times(": "),
		"tabs":          "name:" + times("\t"),
		"zeros":         times("\x00"),
		"words":         "name: a\n" + times("  b\n"),
		"one word":      "name: " + times("x"),
	}
}

func TestHostileDocumentsAreCheap(t *testing.T) { //nolint:paralleltest // it measures memory
	for _, size := range []int{60_000, 250_000} {
		for name, text := range hostile(size) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			done := make(chan error, 1)
			go func() {
				var into struct {
					Name string `yaml:"name"`
				}
				done <- Decode("/etc/x.yaml", []byte(text), &into)
			}()
			select {
			case err := <-done:
				runtime.ReadMemStats(&after)
				if e, ok := errors.AsType[*cli.Error](err); err != nil && (!ok || e.Exit != cli.ExitUsage || !strings.HasPrefix(e.Message, "/etc/x.yaml")) {
					t.Errorf("%s of %d bytes: %v", name, len(text), err)
				}
				// What is alive at once is less than what was ever allocated.
				if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 900 {
					t.Errorf("%s of %d bytes allocated %d MB", name, len(text), mb)
				}
			case <-time.After(time.Minute): // what the library does without bounds
				t.Fatalf("%s of %d bytes is not back after a minute", name, len(text))
			}
		}
	}
}

// A value with a unit costs the same in a long file as in a short one.
func TestManyValuesAreCheap(t *testing.T) { //nolint:paralleltest // it measures memory
	var into struct {
		Caps  []units.Power `yaml:"caps"`
		Waits []Duration    `yaml:"waits"`
		Note  string        `yaml:"note"`
	}
	text := "note: |\n  two\n  lines\ncaps: [" + strings.Repeat("1.5kW, ", 3000) + "2W]\nwaits:\n" + strings.Repeat("  - 3s # a comment\n", 3000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := Decode("/f", []byte(text), &into); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(into.Caps) != 3001 || into.Caps[3000] != 2*units.Watt || len(into.Waits) != 3000 || into.Waits[0] != Duration(3*time.Second) || into.Note != "two\nlines\n" {
		t.Errorf("%d caps, %d waits, %q", len(into.Caps), len(into.Waits), into.Note)
	}
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 300 {
		t.Errorf("allocated %d MB", mb)
	}
}

// A FIFO holds whoever reads it, a device has no end: neither is opened for long.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "x.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir()} {
		done := make(chan error, 1)
		go func() { done <- Load(path, &struct{}{}) }()
		select {
		case err := <-done:
			if e, ok := errors.AsType[*cli.Error](err); !ok || !errors.Is(err, errNoFile) || e.Exit != cli.ExitUsage || e.Message != path+": not a regular file" {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s holds its reader", path)
		}
	}
}

func TestBoundsSayWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"anchor":   {"name: x\nb: &a 1\n", "/f:2:4: \"&\": anchors"},
		"alias":    {"name: *a\n", "/f:1:7: \"*\": anchors"},
		"merge":    {"name: x\nb:\n  <<: {a: 1}\n", "/f:3:3: \"<<\": anchors"},
		"brackets": {"a: " + strings.Repeat("[", 40), "/f:1:36: nested more than 32 levels"},
		"question": {"? a\n: b\n", "/f:1:1: a key that begins with ?"},
		"lines":    {strings.Repeat("#\n", 6_001), "/f:6000:1: more than 6000 lines"},
		"bytes":    {strings.Repeat("#", 256<<10+1), "/f: larger than 262144 bytes"},
		"keys":     {"a: 1\n" + strings.Repeat("a: [1, 2, 3, 4]\n", 5000), "more than 16000 keys"},
	} {
		var into struct {
			Name string `yaml:"name"`
		}
		err := Decode("/f", []byte(c.text), &into)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Hint == "" || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	// Quoted, they are text.
	var into struct {
		Name string `yaml:"name"`
	}
	if err := Decode("/f", []byte("name: \"&a *b <<: [[[[\"\n"), &into); err != nil || into.Name != "&a *b <<: [[[[" {
		t.Errorf("%q, %v", into.Name, err)
	}
}
