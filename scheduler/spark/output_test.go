package spark

// A driver's output is bounded, its end is kept, and the driver has no handle on a file of the scheduler's.

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestOutputOfADriverIsBounded(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	handles := filepath.Join(l.dir, "handles")
	r := runOf(l.dir, "flood", 1, "flood", handles)
	l.start(r)
	if ev := l.ended(); !ev.Ended.OK {
		t.Fatalf("%+v", ev.Ended)
	}
	for name, last := range map[string]string{stdoutFile: "the result\n", stderrFile: "the cause\n"} {
		data := testkit.Need(os.ReadFile(filepath.Join(r.Folder, name)))(t)
		older := testkit.Need(os.ReadFile(filepath.Join(r.Folder, name+replaced)))(t)
		if !bytes.HasSuffix(data, []byte(last)) || len(older) != outputMax || len(data) > outputMax {
			t.Errorf("%s: %d and %d bytes", name, len(older), len(data))
		}
	}
	for line := range strings.Lines(string(testkit.Need(os.ReadFile(handles))(t))) {
		if !strings.HasPrefix(line, "pipe:") {
			t.Errorf("the driver writes to %s", line)
		}
	}
}

// Output that cannot be kept ends no driver.
func TestOutputThatCannotBeKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := testkit.Need(newOutput(dir, stdoutFile))(t)
	testkit.Check(t, os.RemoveAll(dir))
	for range 3 {
		if n, err := o.Write(make([]byte, outputMax)); n != outputMax || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}
