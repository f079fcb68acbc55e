package apps

// The text programs count what is there: the result depends on the words alone,
// not on how they are spread over files, reads and passes.

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"headroom/internal/cli"
	"headroom/internal/testkit"
)

func app(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	exit, stdout, stderr = testkit.Run(t, NewCommand(), "", args...)
	return stdout, stderr, exit
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "text")
	testkit.WriteFile(t, name, text)
	return name
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	text := file(t, "The cap, the budget; THE lease.\nÄrger 42 ärger cap\n")
	one, two := file(t, "a\t2\nb\t1\n"), file(t, "b\t4\nc\t1\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"wordcount": {[]string{"wordcount", text}, "42\t1\nbudget\t1\ncap\t2\nlease\t1\nthe\t3\nÄrger\t1\närger\t1\n"},
		"passes":    {[]string{"wordcount", "--passes=3", text}, "42\t1\nbudget\t1\ncap\t2\nlease\t1\nthe\t3\nÄrger\t1\närger\t1\n"},
		"topn":      {[]string{"topn", "-n", "2", text}, "the\t3\ncap\t2\n"},
		"topn all":  {[]string{"topn", "-n", "99", one}, "1\t1\n2\t1\na\t1\nb\t1\n"},
		"merge":     {[]string{"merge", one, two}, "a\t2\nb\t5\nc\t1\n"},
		"mergetop":  {[]string{"mergetop", "-n", "1", one, two}, "b\t5\n"},
		"empty":     {[]string{"wordcount", file(t, "")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, exit := app(t, c.args...)
			if exit != cli.ExitOK || out != c.want {
				t.Errorf("exit %d, stdout %q, stderr %q; want %q", exit, out, errs, c.want)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
		exit int
	}{
		"no file":      {[]string{"wordcount"}, "requires at least 1 arg", cli.ExitUsage},
		"missing file": {[]string{"wordcount", "/nowhere/at/all"}, "/nowhere/at/all", cli.ExitFailed},
		"folder":       {[]string{"wordcount", t.TempDir()}, "is a directory", cli.ExitFailed},
		"no passes":    {[]string{"wordcount", "--passes=0", "x"}, "--passes 0: must be", cli.ExitUsage},
		"none of top":  {[]string{"topn", "-n", "0", "x"}, "-n 0: must be", cli.ExitUsage},
		"not a result": {[]string{"merge", file(t, "a\t1\nthe cap\n")}, "line 2", cli.ExitFailed},
		"negative":     {[]string{"merge", file(t, "a\t-1\n")}, "line 1", cli.ExitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, exit := app(t, c.args...)
			if exit != c.exit || !strings.Contains(errs, c.want) || out != "" {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit %d and %q", exit, out, errs, c.exit, c.want)
			}
		})
	}
}

// However a text is cut into files at its line ends, the merged counts are those of the whole.
func TestMergeAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`([a-cA-C]{1,3}[ ,.]){0,6}`), 1, 20).Draw(rt, "lines")
		whole, merged := make(counts), make(counts)
		check(rt, whole.countWords(strings.NewReader(strings.Join(lines, "\n"))))
		for len(lines) > 0 {
			n := rapid.IntRange(1, len(lines)).Draw(rt, "n")
			part, out := make(counts), new(bytes.Buffer)
			check(rt, part.countWords(strings.NewReader(strings.Join(lines[:n], "\n"))))
			check(rt, write(out, part.sorted()))
			check(rt, merged.countLines(out))
			lines = lines[n:]
		}
		if got, want := fmt.Sprint(merged.sorted()), fmt.Sprint(whole.sorted()); got != want {
			rt.Fatalf("merged %s, whole %s", got, want)
		}
	})
}

// The size of a read never shows in the result, and an over-long word loses no letter.
func TestReadsOfAnySize(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("watt ", 1000) + strings.Repeat("x", wordMax+10)
	whole, bytewise := make(counts), make(counts)
	check(t, whole.countWords(strings.NewReader(text)))
	check(t, bytewise.countWords(iotest.OneByteReader(strings.NewReader(text))))
	if fmt.Sprint(whole.sorted()) != fmt.Sprint(bytewise.sorted()) {
		t.Error("counts differ between one read and many")
	}
	if got := *whole["watt"]; got != 1000 {
		t.Errorf("watt counted %d times, want 1000", got)
	}
	if p := whole["xxxxxxxxxx"]; p == nil || *p != 1 {
		t.Error("the rest of an over-long word was not counted")
	}
}

func check(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func FuzzCountLines(f *testing.F) {
	f.Add([]byte("a\t1\n"))
	f.Add([]byte("\t\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := make(counts)
		if c.countLines(bytes.NewReader(data)) != nil {
			return
		}
		var out bytes.Buffer
		check(t, write(&out, c.sorted()))
		again := make(counts)
		if err := again.countLines(&out); err != nil {
			t.Fatalf("own output refused: %v", err)
		}
	})
}

func BenchmarkCountWords(b *testing.B) {
	text := strings.Repeat("the cap of a node is what it may draw now, in watts at the wall\n", 1<<14)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		testkit.Check(b, make(counts).countWords(strings.NewReader(text)))
	}
}
