package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"headroom/internal/cli"
	"headroom/internal/durable"
	"headroom/lab/bench"
)

// Record is one finished run, a line of the file of results.
type Record struct {
	Spec    string  `json:"spec"`
	Seed    uint64  `json:"seed"`
	Variant string  `json:"variant"`
	Figures Figures `json:"figures"`
	// Commit is that of the sources, with -dirty after it where they were changed.
	Commit  string    `json:"commit"`
	Machine string    `json:"machine"`
	Date    time.Time `json:"date"`
	TookS   float64   `json:"took_s"`
	// Before and After are the noise of the machine around the run. Noisy runs are not counted.
	Before bench.Noise `json:"noise_before"`
	After  bench.Noise `json:"noise_after"`
	Noisy  bool        `json:"noisy"`
}

// Bounds of the noise of a counted run: how much the times of a fixed loop may differ around the run, and
// their median before and after it, in percent.
const (
	spreadMost = 30
	driftMost  = 15
)

func noisy(before, after *bench.Noise) bool {
	drift := 100 * math.Abs(after.Median/before.Median-1)
	return before.Spread > spreadMost || after.Spread > spreadMost || !(drift <= driftMost)
}

func path(dir, spec string) string { return filepath.Join(dir, spec+".jsonl") }

// Read reads the finished runs of a spec; none where there is no file. A torn last line, which a killed
// campaign leaves, is ignored.
func Read(dir, spec string) (all []Record, err error) {
	text, err := os.ReadFile(path(dir, spec))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("experiment: results: %w", err)
	}
	for line := range bytes.Lines(text) {
		if line[len(line)-1] != '\n' {
			break
		}
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil && r.Spec != spec {
			err = fmt.Errorf("a run of %q", r.Spec)
		}
		if err != nil {
			return nil, cli.Failed("remove that line: only its run is lost", "file of results %s, line %d: %w", path(dir, spec), len(all)+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Append adds a finished run to the file of its spec. The run is on disk when Append returns.
func Append(dir string, r *Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("experiment: keep the run: %w", err)
	}
	text, err := os.ReadFile(path(dir, r.Spec))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		whole := text[:bytes.LastIndexByte(text, '\n')+1] // what follows is torn
		err = durable.Write(durable.OS{}, path(dir, r.Spec), append(append(whole, line...), '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("experiment: keep the run: %w", err)
	}
	return nil
}
