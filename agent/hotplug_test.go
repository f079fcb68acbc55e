package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"headroom/agent/originals"
)

// A policy comes online while powerd has turbo off: its ceiling stands at the end of the
// range without turbo, which is no bound that anybody has set. After powerd it reaches as
// far as the others.
func TestPolicyMetWithTurboOffGoesBackToTheTop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ceiling, want string
		turboWasOn    bool
	}{
		"no bound of its own":       {"2800000", "3900000", true},
		"bounded by somebody":       {"2000000", "2000000", true},
		"turbo was off all the way": {"2800000", "2800000", false},
	} {
		dir := t.TempDir()
		put := func(file, text string) {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(noTurboFile, "1")
		put(policyDir+"1/cpuinfo_max_freq", "2800000")
		put(policyDir+"1/scaling_max_freq", c.ceiling)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		turbo := originals.Saved{Path: noTurboFile, Label: "turbo", Kind: originals.NoTurbo, Original: 1}
		if c.turboWasOn {
			turbo.Original = 0
		}
		j := &originals.Journal{Controls: []originals.Saved{turbo}}
		files := filesOf(t, root)
		met := originals.Saved{Path: policyDir + "1/scaling_max_freq", Label: "policy1 ceiling", Kind: originals.Frequency}
		file, err := met.Open(files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Extend(files, []originals.Control{originals.FileControl(file, met.Label, met.Kind)}); err != nil {
			t.Fatal(err)
		}
		trail, err := originals.OpenTrail(t.TempDir(), j, true)
		if err != nil {
			t.Fatal(err)
		}
		put(policyDir+"1/scaling_max_freq", "1500000") // powerd's own
		if err := trail.NoteValue(met.Path, originals.Value{Number: 1500000}, originals.Value{Number: 2800000}); err != nil {
			t.Fatal(err)
		}
		if c.turboWasOn { // what the kernel does once turbo is back
			put(noTurboFile, "0")
			put(policyDir+"1/cpuinfo_max_freq", "3900000")
		}
		patience := time.Second
		if line, kept, err := originals.PutBackOne(files, j.Controls[1], trail, originals.FilesOnly, &patience); err != nil || kept {
			t.Errorf("%s: %s, kept %v, %v", name, line, kept, err)
		}
		got, err := os.ReadFile(filepath.Join(dir, met.Path))
		if err != nil || string(got) != c.want+"\n" && string(got) != c.want {
			t.Errorf("%s: the ceiling is %q, want %s (%v)", name, got, c.want, err)
		}
		if err := trail.Close(); err != nil {
			t.Error(err)
		}
		_, _ = file.Close(), root.Close()
	}
}
