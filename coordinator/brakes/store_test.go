// Claims: generations of the brake only rise, through restarts and changes of keys; a brake
// is on disk before it goes out, unless the disk does not answer; keys that do not fit end
// the start.
package brakes

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/gossip/brake"
	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/internal/durable/durabletest"
)

func testStore(t *testing.T) (*Store, brake.PrivateKey, brake.Keys) {
	t.Helper()
	private, keys, err := brake.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	b := New(slog.New(slog.DiscardHandler))
	b.Use(keys, &private, func([]byte) error { return nil })
	return b, private, keys
}

// Generations only rise: above what was heard, what the log has, what the file
// says even where no key proves it any more; a request is carried out once.
func TestGenerationsRise(t *testing.T) {
	t.Parallel()
	b, private, keys := testStore(t)
	now := time.Unix(1e9, 0)
	first, already, err := b.Set("mia", "line\nbreak", "R1", 0, now)
	if err != nil || already || first.Generation != 1 || first.Reason != "line break" {
		t.Fatalf("first: %+v, %v, %v", first, already, err)
	}
	if again, already, err := b.Set("mia", "other", "R1", 0, now); err != nil || !already || again != first {
		t.Errorf("the same request: %+v, %v, %v", again, already, err)
	}
	if s, _, _ := b.Set("mia", "", "R2", 41, now); s.Generation != 42 {
		t.Errorf("above the log: %d", s.Generation)
	}
	heard, err := private.Sign(brake.Message{Generation: 50})
	if err != nil {
		t.Fatal(err)
	}
	if s, news := b.prove(heard.Bytes()); !news || s != heard {
		t.Error("a proof was not believed")
	}
	if _, news := b.prove(first.Bytes()); news {
		t.Error("an old proof is news")
	}
	if got := b.Next(0); got != 51 {
		t.Errorf("next is %d", got)
	}
	later := New(slog.New(slog.DiscardHandler))
	later.Use(keys, &private, b.save)
	later.recall(b.Known().Bytes())
	if s, _, _ := later.Set("", "", "", 0, now); s.Generation != 51 {
		t.Errorf("after a restart: %d", s.Generation)
	}
	changed, _, _ := testStore(t) // the key was changed meanwhile
	changed.recall(b.Known().Bytes())
	if s, _, _ := changed.Set("", "", "", 0, now); s.Generation != 51 || changed.keys.Known() == false {
		t.Errorf("after a change of keys: %d", s.Generation)
	}
	rubbish, _, _ := testStore(t)
	rubbish.recall([]byte("rubbish"))
	if s, _, _ := rubbish.Set("", "", "", 0, now); s.Generation != 1 {
		t.Errorf("after a damaged file: %d", s.Generation)
	}
	if _, _, err := b.Set("", "", "", math.MaxUint64, now); !errors.Is(err, errNoMore) {
		t.Errorf("the last generation: %v", err)
	}
}

// A brake is set anew once, and only soon after it was set.
func TestABrakeIsSetAnewOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	b, _, _ := testStore(t)
	if _, ok := b.again(now, 0); ok {
		t.Error("set anew without having been set")
	}
	if _, _, err := b.Set("mia", "fire", "R1", 0, now); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.again(now, 1); ok {
		t.Error("set anew though the log has it")
	}
	s, ok := b.again(now.Add(contestWindow), 0)
	if !ok || s.Generation != 2 || s.Actor != "mia" || s.Reason != "fire" {
		t.Errorf("set anew: %+v, %v", s, ok)
	}
	if same, already, _ := b.Set("mia", "fire", "R1", 0, now); !already || same != s {
		t.Errorf("the request is answered with %+v", same)
	}
	if _, ok := b.again(now, 0); ok {
		t.Error("set anew twice")
	}
	if _, _, err := b.Set("mia", "fire", "R2", 0, now); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.again(now.Add(contestWindow+1), 0); ok {
		t.Error("set anew long after")
	}
}

// The newest brake is on disk before it goes out, unless the disk does not answer:
// then that is said and it goes out all the same.
func TestBrakeIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, public := filepath.Join(dir, "brake.key"), filepath.Join(dir, "brake.pub")
	if err := brake.WriteKey(private, public); err != nil {
		t.Fatal(err)
	}
	cfg := Files{StateDir: dir, PublicKey: public, PrivateKey: private}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := func() *Store {
		b := New(slog.New(slog.DiscardHandler))
		if err := b.Open(cfg); err != nil {
			t.Fatal(err)
		}
		go func() { _ = b.Keep(ctx) }()
		return b
	}
	b := opened()
	s, _, err := b.Set("mia", "", "", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for why := b.AwaitStored(s.Generation); why != ""; why = b.AwaitStored(s.Generation) {
		t.Log(why) // a slow disk
	}
	if again := opened().Known(); again != s {
		t.Errorf("after a restart %+v is known", again)
	}
	b.Use(b.Keys(), b.private, func([]byte) error { return os.ErrPermission })
	s, _, _ = b.Set("mia", "", "", 0, time.Now())
	for why := ""; !strings.Contains(why, "permission"); {
		if why = b.AwaitStored(s.Generation); why == "" {
			t.Fatal("stored on a disk that refuses")
		}
	}
}

// Keys that do not fit together end the start, with a way out.
func TestBrakeKeysAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, pair := range []string{"a", "b"} {
		if err := brake.WriteKey(at(pair+".key"), at(pair+".pub")); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]Files{
		"another pair":      {PublicKey: at("a.pub"), PrivateKey: at("b.key")},
		"no public file":    {PublicKey: at("c.pub")},
		"no private file":   {PublicKey: at("a.pub"), PrivateKey: at("c.key")},
		"the wrong way":     {PublicKey: at("a.key"), PrivateKey: at("a.pub")},
		"private as public": {PublicKey: at("a.key")},
	} {
		c.StateDir = dir
		err := New(slog.New(slog.DiscardHandler)).Open(c)
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Wherever the power is cut while a brake is stored, the server starts with the one before or
// with the new one: its generations never fall below what it has sent.
func TestBrakesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	public, secret := filepath.Join(t.TempDir(), "brake.pub"), filepath.Join(t.TempDir(), "brake.key")
	if err := brake.WriteKey(secret, public); err != nil {
		t.Fatal(err)
	}
	private, err := brake.LoadPrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	open := func(d durable.FS) *Store {
		b := New(slog.New(slog.DiscardHandler))
		if err := b.Open(Files{PublicKey: public, StateDir: "/state", Disk: d}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	save := func(d durable.FS, generation uint64) error {
		s, err := private.Sign(brake.Message{Generation: generation})
		if err != nil {
			t.Fatal(err)
		}
		return open(d).save(s.Bytes())
	}
	before := func() *durabletest.Disk {
		d := durabletest.New()
		if err := save(d, 7); err != nil {
			t.Fatal(err)
		}
		return d
	}
	durabletest.EachCut(before, func(d durable.FS) error { return save(d, 8) }, func(after durable.FS, done bool) {
		if got := open(after).Known().Generation; got != 8 && (done || got != 7) {
			t.Errorf("stored: %v; after the power cut: generation %d", done, got)
		}
	})
}
