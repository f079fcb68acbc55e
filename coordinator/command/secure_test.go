// Claims: outside of one machine everything is encrypted and everybody is somebody:
// a certificate, a token, or a user of the unix socket, each with the rights of its
// role; who has none is told so, with the way in.
package command_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headroom/coordinator/command"
	"headroom/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run is one command line; it answers the exit code and both streams.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code = cli.Run(ctx, command.New(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func good(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := run(t, args...)
	if code != 0 {
		t.Fatalf("%v ended with %d: %s%s", args, code, out, errs)
	}
	return out
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// secureServer is a server with certificates, and the folder of them.
func secureServer(t *testing.T) (addr, dir string) {
	t.Helper()
	dir, addr = t.TempDir(), freeAddr(t)
	good(t, "tls", "ca", "create", "--dir", dir, "--name", "lab")
	good(t, "tls", "cert", "create", "server/c1", "operator/mia", "observer/eve", "node/n[01-02]", "--ca-dir", dir, "--dir", dir)
	yaml := fmt.Sprintf("id: c1\nstate_dir: %s\nservers:\n  - {id: c1, rpc: %q, raft: %q}\ntls: {ca: %s, cert: %s, key: %s}\nsite:\n  - {name: site/lab, budget: 1000W}\n",
		filepath.Join(dir, "state"), addr, freeAddr(t), filepath.Join(dir, "ca.crt"), filepath.Join(dir, "c1.crt"), filepath.Join(dir, "c1.key"))
	file := filepath.Join(dir, "coordinator.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	var logs bytes.Buffer
	go func() { ended <- cli.Run(ctx, command.New(), []string{"run", "--config", file}, &logs, &logs) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; t.Failed() {
			t.Logf("the server ended with %d:\n%s", code, logs.String())
		}
	})
	return addr, dir
}

func TestSecureServer(t *testing.T) {
	t.Parallel()
	addr, dir := secureServer(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	as := func(name string, args ...string) []string {
		return append(args, "--addr", addr, "--ca", in("ca.crt"), "--cert", in(name+".crt"), "--key", in(name+".key"), "--patience", "2m")
	}
	if text := good(t, as("mia", "budget", "show")...); !strings.Contains(text, "site/lab") {
		t.Errorf("an operator reads %s", text)
	}
	good(t, as("mia", "budget", "set", "900W", "--reason", "a drill")...)
	if text := good(t, as("mia", "budget", "history")...); !strings.Contains(text, " mia ") {
		t.Errorf("the actor is not who showed the certificate: %s", text)
	}
	good(t, as("eve", "status")...)
	for typed, want := range map[string]string{
		"budget show": "site/lab\n:4\n", "budget set 900W": "site/lab\n:4\n", "node list --domain": "site/lab\n:4\n",
		"member remove": "c1\n:4\n", "policy set": "demand\nequal\nfair\njoint\npaper\nprogress\nreleased\nstretch\nweighted\n:4\n",
		"budget show -o": "csv\njson\nname\ntable\nwide\nyaml\n:4\n", "snapshot save": ":0\n", "member list": ":4\n",
	} {
		words := strings.Fields(typed)
		got := strings.Split(good(t, slices.Concat(as("eve", "__complete", words[0], words[1]), words[2:], []string{""})...), "\n")
		slices.Sort(got[:len(got)-2]) // the last line is the shell's: ":4" says no files
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s and the tab key: %q, want %q", typed, text, want)
		}
	}
	socket := []string{"--addr", "", "--socket", in("state/coordinator.sock")}
	if text := good(t, append([]string{"token", "self"}, socket...)...); !strings.Contains(text, "role admin") {
		t.Errorf("on the socket one is %s", text)
	}
	token := good(t, append([]string{"token", "create", "prometheus", "--role", "observer"}, socket...)...)
	if err := os.WriteFile(in("token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	bearing := []string{"--addr", addr, "--ca", in("ca.crt"), "--token-file", in("token")}
	if text := good(t, append([]string{"token", "self"}, bearing...)...); !strings.Contains(text, "prometheus, role observer") {
		t.Errorf("the bearer is %s", text)
	}
	if err := os.Mkdir(in("other"), 0o700); err != nil {
		t.Fatal(err)
	}
	good(t, "tls", "ca", "create", "--dir", in("other"), "--name", "other")
	good(t, "tls", "cert", "create", "operator/eve", "--ca-dir", in("other"), "--dir", in("other"))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an observer changes":            {as("eve", "budget", "set", "800W"), cli.ExitDenied, "permission denied: budget set needs role operator; eve has role observer"},
		"an operator makes a token":      {as("mia", "token", "create", "x", "--role", "admin"), cli.ExitDenied, "permission denied: token create needs role admin; mia has role operator"},
		"a node reads":                   {as("n01", "node", "list"), cli.ExitDenied, "permission denied: node list of all nodes needs role observer; n01 has role node"},
		"a token of an observer changes": {append([]string{"budget", "set", "800W"}, bearing...), cli.ExitDenied, "budget set needs role operator"},
		"nobody, in the clear":           {[]string{"status", "--addr", addr, "--patience", "1s"}, cli.ExitDenied, "requires a certificate"},
		"a budget set, in the clear":     {[]string{"budget", "set", "800W", "--addr", addr, "--patience", "1s"}, cli.ExitDenied, "nothing was done"},
		"another authority's operator":   {append([]string{"status"}, "--addr", addr, "--ca", in("other/ca.crt"), "--cert", in("other/eve.crt"), "--key", in("other/eve.key")), cli.ExitDenied, "nothing was sent"},
		"a key that is another's":        {append([]string{"status"}, "--addr", addr, "--ca", in("ca.crt"), "--cert", in("mia.crt"), "--key", in("eve.key")), cli.ExitUsage, "private key does not match"},
		"an authority that is none":      {append([]string{"status"}, "--addr", addr, "--ca", in("token"), "--token-file", in("token")), cli.ExitUsage, "no certificate of an authority"},
	} {
		code, out, errs := run(t, c.args...)
		if code != c.code || !strings.Contains(errs, c.says) || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: ended with %d, want %d: %s%s", name, code, c.code, out, errs)
		}
	}
	id, _, _ := strings.Cut(token, ".")
	good(t, append([]string{"token", "revoke", id, "--yes"}, socket...)...)
	if code, _, errs := run(t, append([]string{"status"}, bearing...)...); code != cli.ExitDenied {
		t.Errorf("a revoked token: %d, %s", code, errs)
	}
}

// Nothing is written over, and what is made says what it is.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good(t, "tls", "ca", "create", "--dir", dir)
	if code, _, errs := run(t, "tls", "ca", "create", "--dir", dir); code != cli.ExitConflict || !strings.Contains(errs, "nothing is written over") {
		t.Errorf("made twice: %d, %s", code, errs)
	}
	good(t, "tls", "cert", "create", "node/n[01-03]", "--ca-dir", dir, "--dir", dir, "--for", "24h")
	text := good(t, "tls", "inspect", filepath.Join(dir, "n02.crt"), filepath.Join(dir, "ca.crt"))
	if !strings.Contains(text, "node/n02") || !strings.Contains(text, "authority") {
		t.Errorf("inspected:\n%s", text)
	}
	for _, bad := range []string{"king/x", "node/", "n01", "node/n[3-1]"} {
		if code, _, errs := run(t, "tls", "cert", "create", bad, "--ca-dir", dir, "--dir", dir); code != cli.ExitUsage || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: %d, %s", bad, code, errs)
		}
	}
	if code, _, _ := run(t, "tls", "inspect", filepath.Join(dir, "n02.key")); code != cli.ExitFailed {
		t.Errorf("a key was inspected as a certificate: %d", code)
	}
}
