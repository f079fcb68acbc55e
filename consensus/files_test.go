// Claims: whatever is wrong with a file of the log or of the snapshots, a server says which, or
// starts with all that it had; it never panics, and never begins anew. Nobody but its owner can
// read the files.
package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"headroom/internal/cli"
)

// spoil replaces a file of a copy of a stopped server.
func spoil(t *testing.T, cfg Config, file string, change func([]byte) []byte) Config {
	t.Helper()
	cfg.Dir = copyDir(t, cfg.Dir)
	path, err := filepath.Glob(filepath.Join(cfg.Dir, file))
	if err != nil || len(path) == 0 {
		t.Fatalf("%s: %v, %v", file, path, err)
	}
	data, err := os.ReadFile(path[0])
	if err != nil {
		t.Fatal(err)
	}
	if data = change(data); data == nil {
		err = os.Remove(path[0])
	} else {
		err = os.WriteFile(path[0], data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func cutTo(n int) func([]byte) []byte { return func(data []byte) []byte { return data[:n] } }

// A segment that was cut short is found by its size, wherever it was cut; the list of segments
// that is cut short, empty, gone or of another format is told in words.
func TestSpoiltFilesAreToldInWords(t *testing.T) {
	t.Parallel()
	cfg, _ := written(t, 30)
	data, err := os.ReadFile(segment(t, cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(data, "\x00"))
	gone := func([]byte) []byte { return nil }
	for name, x := range map[string]struct {
		file   string
		change func([]byte) []byte
		want   error
		words  string
	}{
		"segment to nothing":         {"log/*.wal", cutTo(0), errLogLost, "has acknowledged entry"},
		"segment to half its header": {"log/*.wal", cutTo(10), errLogLost, "has acknowledged entry"},
		"segment to half its data":   {"log/*.wal", cutTo(end / 2), errCorrupt, "it was cut short"},
		"segment to its data":        {"log/*.wal", cutTo(end + 100), errCorrupt, "it was cut short"},
		"segment is gone":            {"log/*.wal", gone, errLogLost, "has acknowledged entry"},
		"list is gone":               {"log/wal-meta.db", gone, errCorrupt, "wal-meta.db is missing"},
		"list is empty":              {"log/wal-meta.db", cutTo(0), errCorrupt, "wal-meta.db is empty"},
		"list is one page":           {"log/wal-meta.db", cutTo(4096), errCorrupt, "wal-meta.db"},
		"list is text":               {"log/wal-meta.db", func(b []byte) []byte { return bytes.Repeat([]byte("text\n"), len(b)/5) }, errCorrupt, "wal-meta.db"},
	} {
		bad := spoil(t, cfg, x.file, x.change)
		before := contents(t, bad.Dir)
		e := refusal(t, bad, x.want)
		if !strings.Contains(e.Message, x.words) {
			t.Errorf("%s: %s", name, e.Message)
		}
		for path, was := range before {
			if now, err := os.ReadFile(path); strings.HasSuffix(path, ".wal") && (err != nil || !bytes.HasPrefix(now, was)) {
				t.Errorf("%s: %s was changed: %v", name, path, err)
			}
		}
	}
}

// Bits that flip anywhere in the list of segments: a refusal in words, or all entries; a panic of
// the libraries is neither.
func TestFlippedBitInTheList(t *testing.T) {
	t.Parallel()
	cfg, whole := written(t, 30)
	rng, refused := rand.New(rand.NewPCG(3, 3)), 0
	for range 30 {
		at, bit := 0, byte(1)<<rng.IntN(8)
		bad := spoil(t, cfg, "log/wal-meta.db", func(data []byte) []byte {
			for at == 0 || data[at] == 0 { // most of it is not used
				at = rng.IntN(len(data))
			}
			data[at] ^= bit
			return data
		})
		var mu sync.Mutex
		var ended error
		bad.Fatal = func(err error) { mu.Lock(); ended = err; mu.Unlock() }
		m := &tape{}
		g, err := Open(bad, m)
		if err != nil {
			if e, ok := errors.AsType[*cli.Error](err); !ok || e.Hint == "" || !strings.Contains(e.Message, bad.Dir) {
				t.Errorf("byte %d: %v", at, err)
			}
			refused++
			continue
		}
		until(t, fmt.Sprintf("byte %d: it leads, or says why not", at), func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ended != nil || leading(g) != nil
		})
		mu.Lock()
		if ended == nil && m.bytes() != whole.bytes() {
			t.Errorf("byte %d: it leads without all entries", at)
		}
		mu.Unlock()
		_ = g.Close()
	}
	t.Logf("%d of 30 were refused", refused)
}

// Snapshots whose list of files cannot be read are none: where the log does not reach back behind
// them, the state would begin in the middle.
func TestUnreadableSnapshotList(t *testing.T) {
	t.Parallel()
	cfg, _ := compacted(t)
	all, err := filepath.Glob(filepath.Join(cfg.Dir, "snapshots", "*", "meta.json"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, text := range []string{"", "{", `{"Version": 99}`} {
		for _, path := range all {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if e := refusal(t, cfg, errCorrupt); !strings.Contains(e.Message, "no snapshot that can be read reaches it") {
			t.Error(e.Message)
		}
	}
}

// Files that an older version has made for everybody become private. (lab/test/cli looks at new ones.)
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	cfg, _ := compacted(t)
	look := func(when string) {
		t.Helper()
		for _, below := range []string{"log", "snapshots", markFile} {
			err := filepath.WalkDir(filepath.Join(cfg.Dir, below), func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; err == nil && info.Mode().Perm() != want {
					t.Errorf("%s: %s is %v", when, path, info.Mode())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	for _, below := range []string{"log", "snapshots"} {
		err := filepath.WalkDir(filepath.Join(cfg.Dir, below), func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				err = os.Chmod(path, map[bool]fs.FileMode{true: 0o755, false: 0o644}[d.IsDir()])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	g := mustOpen(t, cfg, &tape{})
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	look("opened")
}
