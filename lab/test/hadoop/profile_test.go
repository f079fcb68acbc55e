// Claim: `powerlab profile --engine yarn` really runs an application on parts of its maps
// and compares what came out: half of alike files give about half of the counts.
package hadoop

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func profilesAnApplication(t *testing.T, l *lab) {
	t.Helper()
	cmd := exec.CommandContext(within(t), filepath.Join(l.bin, "powerlab"), "profile", "wordcount", "--engine", "yarn", "--bin", l.bin,
		"--maps", "4", "--ratios", "0.5", "--seeds", "1", "-o", "json")
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it says where it hangs
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, &said)
	}
	var profile struct {
		Engine string
		Tasks  int
		Points []struct{ Fraction, Accuracy float64 }
	}
	if err := json.Unmarshal(out, &profile); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if profile.Engine != "yarn" || profile.Tasks != 4 || len(profile.Points) == 0 {
		t.Fatalf("%s", out)
	}
	// The lengths of the files differ by a fifth or so.
	if p := profile.Points[0]; p.Fraction != 0.5 || p.Accuracy < 0.35 || p.Accuracy > 0.65 {
		t.Errorf("half of the maps: %+v", p)
	}
}
