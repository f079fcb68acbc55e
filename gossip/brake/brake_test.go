package brake

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/cli"
)

func pair(t testing.TB) (PrivateKey, Keys) {
	t.Helper()
	private, keys, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return private, keys
}

func signed(t testing.TB, k PrivateKey, m Message) Signed {
	t.Helper()
	s, err := k.Sign(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is signed is believed by who has the key, whatever it says, and comes
// back as it was said.
func TestSignedIsBelieved(t *testing.T) {
	t.Parallel()
	private, keys := pair(t)
	rapid.Check(t, func(t *rapid.T) {
		m := Message{
			Generation: rapid.Uint64Min(1).Draw(t, "generation"),
			At:         time.UnixMicro(rapid.Int64Range(-1<<50, 1<<52).Draw(t, "at")).UTC(),
			Actor:      Fit(rapid.String().Draw(t, "actor"), MaxActor), Reason: Fit(rapid.String().Draw(t, "reason"), MaxReason),
		}
		s, err := private.Sign(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := keys.Open(s.Bytes())
		if err != nil || back != s || back.Message != m || len(s.Bytes()) > MaxSize {
			t.Fatalf("signed %+v, %d bytes, opened %+v, %v", m, len(s.Bytes()), back, err)
		}
		if g, ok := Generation(s.Bytes()); !ok || g != m.Generation {
			t.Fatalf("claims generation %d, %v", g, ok)
		}
	})
}

// Every bit that is turned and every byte that is cut off or added makes a
// message that nobody believes.
func TestNoBitMayBeTurned(t *testing.T) {
	t.Parallel()
	private, keys := pair(t)
	raw := signed(t, private, Message{Generation: 7, At: time.Unix(1e9, 0), Actor: "mia", Reason: "smoke in row 3"}).Bytes()
	for bit := range 8 * len(raw) {
		turned := bytes.Clone(raw)
		turned[bit/8] ^= 1 << (bit % 8)
		if _, err := keys.Open(turned); !errors.Is(err, ErrForged) && !errors.Is(err, ErrMalformed) {
			t.Errorf("bit %d of byte %d: %v", bit%8, bit/8, err)
		}
	}
	for n := range raw {
		if _, err := keys.Open(raw[:n]); err == nil {
			t.Errorf("believed with %d of %d bytes", n, len(raw))
		}
	}
	if _, err := keys.Open(append(bytes.Clone(raw), 0)); err == nil {
		t.Error("believed with a byte behind it")
	}
	if _, err := keys.Open(make([]byte, MaxSize+1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("an oversized one: %v", err)
	}
}

// A signature of another key, of no key, or made by the right key for another
// purpose is a forgery.
func TestForgeries(t *testing.T) {
	t.Parallel()
	private, keys := pair(t)
	other, otherKeys := pair(t)
	m := Message{Generation: 7, Actor: "mia"}
	if _, err := keys.Open(signed(t, other, m).Bytes()); !errors.Is(err, ErrForged) {
		t.Errorf("another key: %v", err)
	}
	if _, err := (Keys{}).Open(signed(t, private, m).Bytes()); !errors.Is(err, ErrForged) {
		t.Errorf("no key believed: %v", err)
	}
	body := m.encode()
	if _, err := keys.Open(append(body, ed25519.Sign(private.key, body)...)); !errors.Is(err, ErrForged) {
		t.Errorf("signed for something else: %v", err)
	}
	if _, err := keys.Open(append(body, make([]byte, ed25519.SignatureSize)...)); !errors.Is(err, ErrForged) {
		t.Errorf("not signed: %v", err)
	}
	both := Keys{append(otherKeys.keys, keys.keys...)}
	if _, err := both.Open(signed(t, private, m).Bytes()); err != nil {
		t.Errorf("the second of two keys: %v", err)
	}
	if !both.Match(private) || otherKeys.Match(private) {
		t.Error("keys are matched with the wrong one")
	}
}

// What could not be read back is not signed.
func TestBadMessagesAreNotSigned(t *testing.T) {
	t.Parallel()
	private, _ := pair(t)
	for name, m := range map[string]Message{
		"no generation": {Actor: "mia"},
		"long actor":    {Generation: 1, Actor: strings.Repeat("a", MaxActor+1)},
		"long reason":   {Generation: 1, Reason: strings.Repeat("a", MaxReason+1)},
		"line break":    {Generation: 1, Reason: "a\nb"},
		"not UTF-8":     {Generation: 1, Actor: "\xff"},
	} {
		if _, err := private.Sign(m); !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := Fit("smoke\nin \xffrow 3", 12); got != "smoke in row" {
		t.Errorf("fitted to %q", got)
	}
	if got := Fit("ab\u00e9", 3); got != "ab" {
		t.Errorf("half a character: %q", got)
	}
}

// Nobody's bytes are believed, whatever they are, and none make the reader fall over.
func FuzzOpen(f *testing.F) {
	private, keys := pair(f)
	good := signed(f, private, Message{Generation: 7, At: time.Unix(1e9, 0), Actor: "mia", Reason: "smoke"}).Bytes()
	f.Add(good)
	f.Add(good[:40])
	f.Add([]byte{version})
	f.Add([]byte{})
	f.Add(make([]byte, MaxSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := keys.Open(data)
		if err == nil && !bytes.Equal(data, good) {
			t.Fatalf("believed %x", data)
		}
		if err != nil && s.Generation != 0 {
			t.Fatalf("refused with %v and told %+v", err, s)
		}
		if len(data) > ed25519.SignatureSize {
			body := data[:len(data)-ed25519.SignatureSize]
			if m, err := decode(body); err == nil && !bytes.Equal(m.encode(), body) {
				t.Fatalf("%x is read as %+v, which is written otherwise", body, m)
			}
		}
	})
}

// A pair is made once: the private key for its owner alone, and never over a file.
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, public := filepath.Join(dir, "brake.key"), filepath.Join(dir, "brake.pub")
	if err := WriteKey(private, public); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(private)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("private key: %v, %v", info.Mode(), err)
	}
	key, err := LoadPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(public)
	if err != nil || !keys.Match(key) {
		t.Fatalf("the pair does not match: %v", err)
	}
	before, _ := os.ReadFile(private)
	for _, paths := range [][2]string{{private, filepath.Join(dir, "new.pub")}, {filepath.Join(dir, "new.key"), public}} {
		e, ok := errors.AsType[*cli.Error](WriteKey(paths[0], paths[1]))
		if !ok || e.Exit != cli.ExitConflict || e.Hint == "" {
			t.Errorf("written over a file: %v", e)
		}
	}
	if after, _ := os.ReadFile(private); !bytes.Equal(before, after) {
		t.Error("the private key was changed")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "new.*")); len(left) > 0 {
		t.Errorf("half a pair is left: %v", left)
	}
}

// A file that is no key, or that others may read, is refused by name and with a
// way out, and what it holds is not shown.
func TestFingerprintsOfAPairAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, public := filepath.Join(dir, "brake.key"), filepath.Join(dir, "brake.pub")
	if err := WriteKey(private, public); err != nil {
		t.Fatal(err)
	}
	a, signs, err := FileFingerprints(private)
	if err != nil || !signs || len(a) != 1 {
		t.Fatal(a, signs, err)
	}
	b, signs, err := FileFingerprints(public)
	if err != nil || signs || !slices.Equal(a, b) {
		t.Errorf("%v of the public key, %v of the private one: signs %v, %v", b, a, signs, err)
	}
}

func TestKeyFilesAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	private, public := filepath.Join(dir, "k"), filepath.Join(dir, "p")
	if err := WriteKey(private, public); err != nil {
		t.Fatal(err)
	}
	secret, _ := os.ReadFile(private)
	open, _ := os.ReadFile(public)
	for name, err := range map[string]error{
		"private missing":     second(LoadPrivateKey(filepath.Join(dir, "none"))),
		"private is a folder": second(LoadPrivateKey(dir)),
		"private is public":   second(LoadPrivateKey(file("a", string(open), 0o600))),
		"private for all":     second(LoadPrivateKey(file("b", string(secret), 0o644))),
		"private is text":     second(LoadPrivateKey(file("c", "hello", 0o600))),
		"public missing":      second(LoadKeys(filepath.Join(dir, "none"))),
		"public is private":   second(LoadKeys(file("d", string(secret), 0o600))),
		"public empty":        second(LoadKeys(file("e", "", 0o600))),
		"public five times":   second(LoadKeys(file("f", strings.Repeat(string(open), 5), 0o600))),
		"public and rubbish":  second(LoadKeys(file("g", string(open)+"rubbish", 0o600))),
		"public too long":     second(LoadKeys(file("h", strings.Repeat("#", maxKeyFile+1), 0o600))),
		"public not a key":    second(LoadKeys(file("i", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", 0o600))),
		"private not a key":   second(LoadPrivateKey(file("j", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", 0o600))),
	} {
		e, ok := errors.AsType[*cli.Error](err)
		if !ok || e.Exit != cli.ExitUsage || e.Hint == "" || !strings.Contains(e.Message, dir) || strings.Contains(e.Message, "hello") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if keys, err := LoadKeys(file("two", string(open)+string(open), 0o644)); err != nil || len(keys.keys) != 2 {
		t.Errorf("two keys in a file: %v, %v", keys, err)
	}
	if _, err := LoadPrivateKey(file("group", string(secret), 0o640)); err != nil {
		t.Errorf("readable by its group: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
