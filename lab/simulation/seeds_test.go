// Claim: what the simulation has found once stays repaired: every schedule that is
// kept in testdata/seeds breaks no promise any more. docs/robustness.md describes what
// each was about.
package simulation

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

func TestKeptSeeds(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/seeds/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	record := testkit.Need(os.ReadFile("../../docs/robustness.md"))(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.Need(readSchedule(testkit.Need(os.ReadFile(file))(t)))(t)
			for _, v := range s.replay(nil).Violations {
				t.Errorf("%s at %.3f s: %s (once: %s)", v.Promise, v.At, v.What, s.What)
			}
			if s.Promise == "" || s.What == "" {
				t.Error("it does not say what it broke")
			}
			if !bytes.Contains(record, []byte("- `"+name+"`: ")) {
				t.Errorf("docs/robustness.md has no line for %s", name)
			}
		})
	}
}

func TestReadScheduleRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON":          "seed 1",
		"an unknown field": `{"seed":1,"span_ms":5000,"colour":"red"}`,
		"no span":          `{"seed":1}`,
		"an unknown class": `{"seed":1,"span_ms":5000,"only":["earthquake"]}`,
		"an unknown rule":  `{"seed":1,"span_ms":5000,"sabotage":"physics"}`,
	} {
		if _, err := readSchedule([]byte(text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
