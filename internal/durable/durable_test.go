// Claims: a file that is replaced has its old content or its new one wherever the power is cut,
// and the new one once Write has returned; one that is removed stays removed; the real file
// system does what the forgetting one expects.
package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"headroom/internal/durable"
	"headroom/internal/durable/durabletest"
	"headroom/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

const path = "/var/lib/headroom/denied.json"

// stored is a disk on which the file is durable.
func stored(t *testing.T, text string) func() *durabletest.Disk {
	return func() *durabletest.Disk {
		d := durabletest.New()
		if err := durable.Write(d, path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
}

func TestPowerCutDuringWrite(t *testing.T) {
	t.Parallel()
	cuts := 0
	durabletest.EachCut(stored(t, "old"), func(d durable.FS) error {
		return durable.Write(d, path, []byte("new"), 0o600)
	}, func(after durable.FS, done bool) {
		cuts++
		got, err := after.ReadFile(path)
		if err != nil || string(got) != "new" && (done || string(got) != "old") {
			t.Errorf("cut %d, returned %v: %q, %v", cuts, done, got, err)
		}
		if err := durable.Write(after, path, []byte("next"), 0o600); err != nil {
			t.Errorf("cut %d: the next write: %v", cuts, err)
		}
	})
	if cuts < 3*5 {
		t.Errorf("%d outcomes: create, write, sync, rename and the folder are five places", cuts)
	}
}

func TestPowerCutDuringRemove(t *testing.T) {
	t.Parallel()
	durabletest.EachCut(stored(t, "old"), func(d durable.FS) error { return durable.Remove(d, path) }, func(after durable.FS, done bool) {
		if _, err := after.ReadFile(path); done && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that was removed is back: %v", err)
		}
	})
}

// The disk of the tests does forget: without a sync, of the file or of the folder, nothing is left.
func TestTheDiskForgets(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]func(durable.FS, durable.File) error{
		"neither": func(durable.FS, durable.File) error { return nil },
		"file":    func(_ durable.FS, f durable.File) error { return f.Sync() },
		"folder":  func(d durable.FS, _ durable.File) error { return d.SyncDir(filepath.Dir(path)) },
	} {
		d := durabletest.New()
		f, err := d.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("text")); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sync(d, f), f.Close()); err != nil {
			t.Fatal(err)
		}
		if got, _ := d.Survivors()[0].ReadFile(path); len(got) > 0 {
			t.Errorf("synced %s: %q survives", name, got)
		}
	}
}

func TestRealFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "note.json")
	// What an interrupted write left, open to everybody.
	if err := os.WriteFile(filepath.Join(dir, ".note.json.new"), []byte("left"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a longer text", "short"} {
		if err := durable.Write(durable.OS{}, name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := (durable.OS{}).ReadFile(name); err != nil || !bytes.Equal(got, []byte(text)) {
			t.Errorf("%q, %v", got, err)
		}
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v: only the file is left", files, err)
	}
	for range 2 { // the second finds nothing
		if err := durable.Remove(durable.OS{}, name); err != nil {
			t.Error(err)
		}
	}
	if err := durable.Write(durable.OS{}, filepath.Join(dir, "missing", "x"), nil, 0o600); err == nil {
		t.Error("a folder that does not exist was made")
	}
}
