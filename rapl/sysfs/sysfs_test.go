// Claims: the value of an attribute is its first line; text that is no number is
// an error that names file and text, and never a value; a write never truncates
// or creates a file and reports what stands there afterwards; no path leaves the
// root.
package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/rapl/sysfs"
)

func rootWith(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func TestParseInt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       int64
		bad        bool
	}{
		{name: "plain", text: "190000000\n", want: 190_000_000},
		{name: "no newline", text: "42", want: 42},
		{name: "blanks", text: "  7 \t\r\n", want: 7},
		{name: "tail of an older value", text: "95000000\n0\n", want: 95_000_000},
		{name: "largest", text: "9223372036854775807", want: 1<<63 - 1},
		{name: "too large", text: "9223372036854775808", bad: true},
		{name: "empty", text: "", bad: true},
		{name: "first line empty", text: "\n5\n", bad: true},
		{name: "negative", text: "-1", bad: true},
		{name: "word", text: "<unsupported>\n", bad: true},
		{name: "exponent", text: "1e6", bad: true},
		{name: "two numbers", text: "1 2", bad: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := sysfs.ParseInt("some/file", []byte(c.text))
			if c.bad {
				var parse *sysfs.ParseError
				if !errors.As(err, &parse) || !errors.Is(err, sysfs.ErrNotNumber) || parse.File != "some/file" {
					t.Fatalf("error %v, want a ParseError naming some/file", err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Fatalf("got %d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestParsePrinted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64Min(0).Draw(t, "v")
		got, err := sysfs.ParseInt("f", []byte(strconv.FormatInt(v, 10)+"\nrest"))
		if err != nil || got != v {
			t.Fatalf("%d came back as %d, %v", v, got, err)
		}
	})
}

func FuzzParseInt(f *testing.F) {
	for _, s := range []string{"0", "12\n", " 5 ", "-3", "9223372036854775808", "abc", "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := sysfs.ParseInt("f", text)
		if err != nil {
			if v != 0 {
				t.Fatalf("value %d beside error %v", v, err)
			}
			return
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if want, err := strconv.ParseInt(strings.Trim(line, " \t\r"), 10, 64); err != nil || want != v {
			t.Fatalf("%q read as %d, strconv says %d, %v", text, v, want, err)
		}
	})
}

func TestWriteReadsBack(t *testing.T) {
	t.Parallel()
	root := rootWith(t, map[string]string{"a/limit": "190000000\n"})
	c, err := sysfs.NewControl("a/limit", sysfs.Disk(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, v := range []int64{95_000_000, 1, 220_000_000} {
		got, err := c.Write(v)
		if err != nil || got != v {
			t.Fatalf("wrote %d, reads %d, %v", v, got, err)
		}
	}
}

func TestWriteNeverCreates(t *testing.T) {
	t.Parallel()
	root := rootWith(t, map[string]string{"a/limit": "1\n"})
	if _, err := sysfs.NewControl("a/other", sysfs.Disk(root)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("error %v, want not exist", err)
	}
	if _, err := root.Stat("a/other"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the file was made: %v", err)
	}
}

func TestNoPathLeavesTheRoot(t *testing.T) {
	t.Parallel()
	root := rootWith(t, map[string]string{"x": "1\n"})
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root.Name(), "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"link", "../" + filepath.Base(root.Name()) + "/x", outside} {
		if v, err := sysfs.ReadInt(root, path); err == nil {
			t.Errorf("%s read as %d from outside the root", path, v)
		}
	}
}

func TestReadMakesNoGarbage(t *testing.T) {
	root := rootWith(t, map[string]string{"energy_uj": "262143328850\n"})
	a, err := sysfs.NewAttr("energy_uj", sysfs.Disk(root))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if n := testing.AllocsPerRun(100, func() { _, _ = a.Int() }); n != 0 {
		t.Errorf("%v allocations for one reading, want none", n)
	}
}

// Labels of firmware come in any encoding, or damaged: what is read can stand in every message.
func TestTextIsReadable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"Package id 0\n": "Package id 0", "Gehäuse\n": "Gehäuse", "CPU \xc0\x1c[\x87\n": "CPU ??[?", "plat\xe9form": "plat?form",
		"a\tb\n": "a\tb", "\x1b[31mred\n": "?[31mred", "\xff\n": "?", "\n": "",
	} {
		root := rootWith(t, map[string]string{"label": raw})
		got, err := sysfs.ReadText(root, "label")
		if err != nil || got != want {
			t.Errorf("%q is read as %q, %v; want %q", raw, got, err, want)
		}
	}
}
