// Claims: the zones of every machine whose tree is known are shown, each once and
// under a name of its own; a virtual machine without RAPL has none and a check of
// it ends with words.
package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/cli"
)

// plant writes a machine's tree from its description: "[directory]" before its
// "file = value" lines, and "link -> target" lines.
func plant(t *testing.T, description string) string {
	t.Helper()
	root, dir := t.TempDir(), ""
	if err := os.MkdirAll(filepath.Join(root, "sys"), 0o755); err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(description, "\n") {
		name, value, isFile := strings.Cut(line, " = ")
		link, target, isLink := strings.Cut(line, " -> ")
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			dir = strings.Trim(line, "[]")
			err = os.MkdirAll(filepath.Join(root, dir), 0o755)
		case isLink:
			path := filepath.Join(root, link)
			if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
				err = os.Symlink(target, path)
			}
		case isFile:
			err = os.WriteFile(filepath.Join(root, dir, name), []byte(value+"\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestEveryKnownMachine(t *testing.T) {
	t.Parallel()
	trees, err := filepath.Glob("../../rapl/testdata/*.tree")
	if err != nil || len(trees) == 0 {
		t.Fatalf("no trees: %v", err)
	}
	for _, path := range trees {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			root := plant(t, string(data))
			var stdout, stderr bytes.Buffer
			cmd := New()
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			cmd.SetArgs([]string{"zone", "list", "--root", root, "--interval", "50ms", "-o", "json"})
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got cli.List[zoneRow]
			if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if bare := strings.HasPrefix(name, "vm-"); bare != (len(got.Items) == 0) || bare != strings.Contains(stderr.String(), "note: no zones") {
				t.Errorf("%d zones, %q", len(got.Items), stderr.String())
			}
			checkRows(t, got.Items)
			for _, f := range checkAll(t.Context(), &place{config: "none.yaml", root: root}, false) {
				if f.Text == "" || (f.State != checkOK && f.Hint == "") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

func checkRows(t *testing.T, rows []zoneRow) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.Zone] || r.Zone == "" || r.Kind == "" || r.Control == "" || r.State == "" {
			t.Errorf("%+v", r)
		}
		seen[r.Zone] = true
		for _, v := range []*float64{r.PowerW, r.EnergyJ, r.EffectiveW, r.WindowS, r.MaxW, r.RangeJ} {
			if v != nil && *v < 0 {
				t.Errorf("%s: %v is below 0", r.Zone, *v)
			}
		}
		if r.RequestedW != nil || r.WrittenW != nil {
			t.Errorf("%s: nobody has asked for or written a limit", r.Zone)
		}
	}
}
