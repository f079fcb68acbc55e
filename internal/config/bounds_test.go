// Claims: no document, however it is made, takes more than a moment and some memory to be
// read or refused; what is refused for a bound says where.
package config

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"headroom/internal/cli"
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
