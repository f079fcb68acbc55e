// Claims: only a terminal is one, a device that nobody looks at is not; whoever runs
// a command has a name.
package cli_test

import (
	"bytes"
	"os"
	"testing"

	"headroom/internal/cli"
)

func TestIsTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, stream := range map[string]any{"a buffer": &bytes.Buffer{}, "nothing": nil, "the null device": null} {
		if cli.IsTerminal(stream) {
			t.Errorf("%s is taken for a terminal", name)
		}
	}
	// The master's side of a pseudo terminal is one too.
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pty.Close() }()
	if !cli.IsTerminal(pty) {
		t.Error("a terminal is not taken for one")
	}
}

func TestActor(t *testing.T) {
	t.Parallel()
	if cli.Actor() == "" {
		t.Error("nobody runs this test")
	}
}
