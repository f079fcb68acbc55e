package gossip

// A cluster changes its key while it runs and loses nobody; whoever has only the old
// one is left out, and that is said; what cannot be a key changes nothing.

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// losses counts members that a log says have gone.
func losses(l *lines) int { return strings.Count(l.String(), "member gone") }

func TestKeyChangesWhileItRuns(t *testing.T) {
	t.Parallel()
	older, newer := newKey(t), newKey(t)
	log := &lines{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var all []*Gossip
	var join []string
	for i := range 5 {
		cfg := Config{Name: fmt.Sprintf("m%d", i), Role: RoleNode, Key: older, Join: join, Logger: logger}
		if i < 2 {
			cfg.Role = RoleCoordinator
		}
		g := member(t, cfg)
		all, join = append(all, g), []string{g.Addr()}
	}
	everybody := func() bool {
		return !slices.ContainsFunc(all, func(g *Gossip) bool { return names(g.Members()) != "m0 m1 m2 m3 m4" })
	}
	within(t, 2*pushPullInterval, "everybody sees everybody", everybody)

	// One after the other, as an operator does; in between some send with one key and
	// some with the other.
	file := filepath.Join(t.TempDir(), "gossip.key")
	steps := []struct {
		name string
		keys Keys
	}{{"add", Keys{older, newer}}, {"promote", Keys{newer, older}}, {"remove", Keys{newer}}}
	for _, step := range steps {
		if err := os.WriteFile(file, []byte(step.keys.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, g := range all {
			if err := g.Reload(file); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			// A whole comparison with another member, both ways, under the keys as they are.
			if _, err := g.list.Join([]string{all[0].Addr()}); err != nil {
				t.Errorf("%s: %s cannot talk to m0: %v", step.name, g.cfg.Name, err)
			}
			if !everybody() {
				t.Errorf("%s: somebody is missed", step.name)
			}
		}
		for _, g := range all {
			if got, want := g.Keys().Fingerprints(), step.keys.Fingerprints(); !slices.Equal(got, want) {
				t.Errorf("%s: %s has the keys %v, want %v", step.name, g.cfg.Name, got, want)
			}
		}
	}
	if n := losses(log); n > 0 {
		t.Errorf("%d times a member was missed:\n%s", n, log)
	}
	if from, _ := all[0].Foreign(); from != "" {
		t.Errorf("%s was refused", from)
	}

	// Who missed it all sees nobody, and each whom it asks says so.
	late := member(t, Config{Name: "late", Role: RoleNode, Key: older, Join: []string{all[0].Addr()}})
	within(t, 30*time.Second, "the stranger is told of", func() bool { from, _ := all[0].Foreign(); return from != "" })
	if !strings.Contains(log.String(), "another gossip key") {
		t.Error("the log does not say so")
	}
	if names(late.Members()) != "late" || !everybody() {
		t.Errorf("it sees %s, the others %s", names(late.Members()), names(all[0].Members()))
	}
	// It gets the file, and is in.
	if err := late.Reload(file); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, "it is in", func() bool { return strings.Contains(names(all[0].Members()), "late") })
}

func TestBadKeysChangeNothing(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	g := member(t, Config{Name: "a", Role: RoleCoordinator, Key: key})
	for name, keys := range map[string]Keys{"none": {}, "short": {key[:16]}, "second short": {newKey(t), key[:5]}} {
		if err := g.SetKeys(keys); !errors.Is(err, errKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.Reload(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if got := g.Keys().Fingerprints(); !slices.Equal(got, Keys{key}.Fingerprints()) {
		t.Errorf("the keys are %v", got)
	}
}
