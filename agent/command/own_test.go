// Claims: a command that reads the machine itself, though the operator may take its figures for
// powerd's, says so and why; a counter that stands still is never 0 W.
package command

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headroom/agent"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/rapl"
)

// said runs a command and returns what it wrote to stdout and to stderr.
func said(t *testing.T, args ...string) (out, notes string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := New()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	_ = cmd.ExecuteContext(t.Context()) // what it says counts here
	return stdout.String(), stderr.String()
}

func TestCommandsSayWhoseFiguresTheyShow(t *testing.T) {
	t.Parallel()
	root := tree(t, zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles()))
	lists := [][]string{{"zone", "list", "--interval", "50ms"}, {"sensor", "list"}, {"freq", "list"}, {"measure", "--for", "100ms", "--interval", "50ms"}, {"record", "--for", "100ms", "--interval", "50ms"}}
	state := t.TempDir()
	for _, args := range lists {
		if _, notes := said(t, append(args, "--root", root, "--state-dir", state)...); !strings.Contains(notes, "note: no powerd runs on "+state) {
			t.Errorf("%s: %q", args[0], notes)
		}
		if _, notes := said(t, append(args, "--root", root)...); strings.Contains(notes, "powerd") {
			t.Errorf("%s of a tree that was asked for: %q", args[0], notes)
		}
	}
	socket, err := rpc.ListenUnix(agent.SocketPath(state))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewAgentServiceHandler(headroomv1connect.UnimplementedAgentServiceHandler{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	t.Cleanup(func() { _, _ = server.Close(), <-served })
	for _, args := range lists {
		if _, notes := said(t, append(args, "--root", root, "--state-dir", state)...); !strings.Contains(notes, "note: powerd does not answer (") {
			t.Errorf("%s: %q", args[0], notes)
		}
	}
	if out, _ := said(t, "check", "--root", root, "--state-dir", state); !strings.Contains(out, "FAIL  powerd      runs and does not answer: ") {
		t.Errorf("check: %s", out)
	}
	// Completion must not disturb the line that is typed.
	if _, notes := said(t, "__complete", "zone", "show", "--root", root, "--state-dir", state, "p"); strings.Contains(notes, "does not answer") {
		t.Errorf("completion: %q", notes)
	}
}

// Figures of a counter that moves stay what they were, beside one that stands still.
func TestStandingCounterBesideAMovingOne(t *testing.T) {
	t.Parallel()
	root := tree(t, merge(zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles()), zoneFiles(powercap+"intel-rapl:1", "package-1", limitFiles())))
	o, err := openOwn(root)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close() //nolint:errcheck // only read
	o.look()
	if err := os.WriteFile(filepath.Join(root, powercap+"intel-rapl:1/energy_uj"), []byte("123900000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-time.NewTimer(lookMin).C
	rows := sensorRows(site{root: root}, o)
	if r := rows[0]; r.PowerW != nil || r.State == "ok" || r.Text != stillWords {
		t.Errorf("it stands still: %+v", r)
	}
	if r := rows[1]; r.PowerW == nil || *r.PowerW <= 0 || r.State != "ok" {
		t.Errorf("it moves: %+v", r)
	}
	if o.total(rapl.Package) != nil {
		t.Error("the sum of both is known")
	}
	var notes bytes.Buffer
	o.noteStill(&notes)
	o.noteStill(&notes)
	if notes.String() != "note: package-0: counter does not advance, power is unknown (an emulator, a virtual machine, or energy filtering)\n" {
		t.Errorf("%q", notes.String())
	}
}
