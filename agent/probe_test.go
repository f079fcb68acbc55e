// Claims: a probe leaves every control as it was and no note behind it; beside a
// running powerd, or over its saved originals, it touches nothing and says why.
package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/internal/cli"
	"headroom/rapl"
)

// probe probes the packages of a lab.
func (l *lab) probe(t *testing.T) error {
	t.Helper()
	cfg := l.config()
	root, err := machine.OpenRoot(cfg.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	tree, err := rapl.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	return Probe(cfg.StateDir, tree.OfKind(rapl.Package))
}

func TestProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	original := l.controls()
	if err := l.probe(t); err != nil {
		t.Error(err)
	}
	if !equal(l.controls(), original) {
		t.Errorf("controls %v, want %v", l.controls(), original)
	}
	if left, err := Leftovers(l.config().StateDir); err != nil || left != (Leftover{}) {
		t.Errorf("it left %+v, %v", left, err)
	}
}

func TestProbeIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(t *testing.T, l *lab) // what is there before the probe
		want   string
	}{
		"beside a powerd": {func(t *testing.T, l *lab) {
			held, err := statedir.Lock(l.config().StateDir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = statedir.Unlock(held) })
		}, "another powerd is running"},
		"over saved originals": {func(t *testing.T, l *lab) {
			if err := savedByAnother().Store(statedir.OS{Dir: l.config().StateDir}); err != nil {
				t.Fatal(err)
			}
		}, "not restored yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			c.before(t, l)
			original := l.controls()
			err := l.probe(t)
			if e, ok := errors.AsType[*cli.Error](err); !ok || !strings.Contains(e.Message, c.want) || e.Hint == "" {
				t.Errorf("%v, want %q", err, c.want)
			}
			if !equal(l.controls(), original) {
				t.Errorf("controls %v were touched", l.controls())
			}
		})
	}
}

// What somebody has to look after is told: originals, a note of a probe, damage.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	d := statedir.OS{Dir: t.TempDir()}
	note := "sys/x 185000000"
	if err := errors.Join(savedByAnother().Store(d), d.Durable(ProbeFile, []byte(note+"\n"))); err != nil {
		t.Fatal(err)
	}
	if left, err := Leftovers(d.Dir); err != nil || left != (Leftover{Journal: true, Controls: 3, Probe: note}) {
		t.Errorf("%+v, %v", left, err)
	}
	if err := os.WriteFile(d.Path(statedir.JournalFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Leftovers(d.Dir); !errors.Is(err, originals.ErrDamaged) {
		t.Errorf("a damaged journal: %v", err)
	}
}

// savedByAnother is a journal of three controls.
func savedByAnother() *originals.Journal {
	return &originals.Journal{Version: originals.JournalVersion, Node: "n01", BootID: "b", Controls: []originals.Saved{
		{Path: "sys/a", Label: "package-0 long_term limit", Kind: originals.Power, Original: 185_000_000},
		{Path: "sys/b", Label: "package-0 long_term window", Kind: originals.Window, Original: 999_424},
		{Path: "sys/c", Label: "package-0 limits switch", Kind: originals.Switch, Original: 1},
	}}
}
