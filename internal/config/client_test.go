package config

// The client configuration is the file that the environment names, the user's, or the machine's, in this order; what is wrong
// in it is said with its place.

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/internal/testkit"
)

func TestReadClient(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	own := filepath.Join(home, ".config", "headroom", "client.yaml")
	testkit.WriteFile(t, own, "schedulers: [10.0.0.20:7410, 10.0.0.21:7410]\nca: ca.crt\ncert: alice.crt\nkey: /keys/alice.key\n")
	other := filepath.Join(home, "other.yaml")
	testkit.WriteFile(t, other, "schedulers: [10.0.0.30:7410]\n")
	read := func(env map[string]string) (Client, error) {
		return ReadClient(func(name string) (string, bool) { value, ok := env[name]; return value, ok })
	}
	c, err := read(map[string]string{"HOME": home})
	if err != nil || len(c.Schedulers) != 2 || c.CA != filepath.Join(filepath.Dir(own), "ca.crt") || c.Key != "/keys/alice.key" {
		t.Errorf("the user's: %+v, %v", c, err)
	}
	files := secure.Files{Cert: "bob.crt", Key: "bob.key"}
	if c.Fill(&files); files.Cert != "bob.crt" || files.Key != "bob.key" || files.CA != c.CA {
		t.Errorf("filled %+v", files)
	}
	files = secure.Files{}
	if c.Fill(&files); files.Cert != c.Cert || files.Key != c.Key {
		t.Errorf("filled %+v", files)
	}
	if c, err := read(map[string]string{"HOME": home, ClientEnv: other}); err != nil || c.Schedulers[0] != "10.0.0.30:7410" {
		t.Errorf("a named one: %+v, %v", c, err)
	}
	if c, err := read(map[string]string{"HOME": home, ClientEnv: ""}); err != nil || len(c.Schedulers) != 0 {
		t.Errorf("none: %+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"scheduler: [a:1]\n": "unknown key \"scheduler\"", "schedulers: [10.0.0.30]\n": "the port is missing", "schedulers: {\n": "other.yaml:1",
	} {
		testkit.WriteFile(t, other, text)
		_, err := read(map[string]string{ClientEnv: other})
		if e, ok := errors.AsType[*cli.Error](err); !ok || e.Exit != cli.ExitUsage || !strings.Contains(e.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := read(map[string]string{ClientEnv: filepath.Join(home, "missing")}); err == nil {
		t.Error("a named file that is missing is no error")
	}
}
