package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// library makes folders with n MB of text, plain and gzipped, and files that are
// no text.
func library(t *testing.T, mb int) []string {
	t.Helper()
	prose, sources := filepath.Join(t.TempDir(), "doc"), filepath.Join(t.TempDir(), "src")
	for _, dir := range []string{prose, sources} {
		testkit.Check(t, os.MkdirAll(dir, 0o755))
	}
	text := []byte(strings.Repeat("a line of real text\n", 1<<20/20))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, z.Close())
	files := map[string][]byte{
		filepath.Join(prose, "book.gz"): packed.Bytes(), filepath.Join(prose, "image"): {0x89, 'P', 'N', 'G', 0, 1},
		filepath.Join(prose, "latin1"): {'n', 0xe9, 'e', '\n'}, filepath.Join(prose, "empty"): nil,
	}
	for i := 1; i < mb; i++ {
		files[filepath.Join(sources, strings.Repeat("x", i)+".go")] = text
	}
	for name, data := range files {
		testkit.WriteFile(t, name, data)
	}
	return []string{prose, filepath.Join(prose, "missing"), sources}
}

// The corpus is as many whole parts as requested, cut at line ends, text only;
// when real text runs out it repeats.
func TestCorpusIsTextInParts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "text")
	c := testkit.Need(makeCorpus(t.Context(), dir, 5*partSize, library(t, 5)))(t)
	if len(c.parts) != 5 {
		t.Fatalf("%d parts, want 5", len(c.parts))
	}
	for _, p := range c.parts {
		data := testkit.Need(os.ReadFile(p))(t)
		if len(data) > partSize || len(data) < partSize-100 || !bytes.HasSuffix(data, []byte("\n")) || !bytes.HasPrefix(data, []byte("a line of")) {
			t.Errorf("%s: %d bytes, %q", p, len(data), data[:20])
		}
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), ".text-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A small library fills one part, repeated; too little text is refused with a way out.
func TestCorpusOfLittleText(t *testing.T) {
	t.Parallel()
	c, err := makeCorpus(t.Context(), filepath.Join(t.TempDir(), "text"), 3*partSize, library(t, 1))
	if err != nil || len(c.parts) != 3 {
		t.Errorf("%d parts, %v", len(c.parts), err)
	}
	if _, err := makeCorpus(t.Context(), filepath.Join(t.TempDir(), "text"), 3*partSize, []string{t.TempDir()}); !errors.Is(err, errNoText) {
		t.Errorf("no text at all: %v", err)
	}
}

// An interrupted making leaves nothing that a later run could take for the text.
func TestCorpusInterrupted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "text")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := makeCorpus(ctx, dir, 4*partSize, library(t, 3)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The text is made once; the second run finds it.
func TestCorpusIsKept(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	testkit.Check(t, os.MkdirAll(filepath.Join(cache, corpusName(textSize)), 0o755))
	part := filepath.Join(cache, corpusName(textSize), "part-0000.txt")
	testkit.WriteFile(t, part, "text\n")
	c, err := findCorpus(t.Context(), cache, nil, func(format string, _ ...any) { t.Errorf("said %q", format) })
	if err != nil || len(c.parts) != 1 || c.parts[0] != part {
		t.Errorf("%+v, %v", c, err)
	}
}
