package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/jobs/speculation"
)

// Speculation is the speculation section: how jobs with a deadline or an error bound choose
// between waiting tasks and copies of running ones.
type Speculation struct {
	// Policy is ours, grass, gs, ras, late, mantri or none.
	Policy string `yaml:"policy"`
	// Xi is the part of such jobs that run gs or ras all through, "15%", to teach grass and ours.
	Xi string `yaml:"xi"`
}

// speculationDefaults are the paper's part of samples, and the policy that knows of caps.
func speculationDefaults() Speculation {
	return Speculation{Policy: string(speculation.Ours), Xi: "15%"}
}

// speculates are the policies that decide while jobs run.
func speculates() []string {
	return []string{
		string(speculation.Ours), string(speculation.GRASS), string(speculation.GS), string(speculation.RAS),
		string(speculation.LATE), string(speculation.Mantri), string(speculation.None),
	}
}

func (s Speculation) check() *cli.Error {
	if !slices.Contains(speculates(), s.Policy) {
		return config.Bad("want one of "+strings.Join(speculates(), ", "), "speculation.policy %q is unknown", s.Policy)
	}
	if _, err := config.ParsePart(s.Xi); err != nil {
		return config.Bad("xi: 15% is the default; 0% samples no job", "speculation.xi %q must be from 0 to 1 (100%%)", s.Xi)
	}
	return nil
}

// rule is what the core decides on copies by.
func (s Speculation) rule() dispatch.Speculation {
	xi, _ := config.ParsePart(s.Xi) // it was checked
	return dispatch.Speculation{Policy: speculation.Policy(s.Policy), Xi: xi}
}

// samplesKept bounds the samples that are kept, the newest of them: as many as are used.
const samplesKept = 2000

// samples are what past jobs teach about when to switch policies, in a file of the scheduler's
// folder. Lost samples cost time, never a job: failures are logged and passed over.
type samples struct {
	path   string
	logger *slog.Logger
	// all belong to the loop. fresh are those that are to be written: the file is on the disk
	// only after a while, which the loop does not wait for.
	all   []speculation.Sample
	fresh chan []speculation.Sample
}

// readSamples reads the samples in a folder; none where there is no file of them.
func readSamples(dir string, logger *slog.Logger) *samples {
	s := &samples{path: filepath.Join(dir, "samples.json"), logger: logger, fresh: make(chan []speculation.Sample, 1)}
	data, err := config.ReadFile(s.path, samplesSize)
	if err == nil {
		err = json.Unmarshal(data, &s.all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("samples of past jobs not read", slog.Any("error", err))
		s.all = nil
	}
	return s
}

// samplesSize bounds the file of samples: a few hundred bytes for each.
const samplesSize = 1 << 20

// keep adds a sample, if there is one, and has the file written. Only the loop calls it.
func (s *samples) keep(x *speculation.Sample) {
	if x == nil {
		return
	}
	s.all = append(s.all, *x)
	s.all = s.all[max(0, len(s.all)-samplesKept):]
	select {
	case <-s.fresh: // older ones, which nobody has begun to write
	default:
	}
	s.fresh <- slices.Clone(s.all)
}

// run writes the file whenever there are fresh samples, until ctx ends.
func (s *samples) run(ctx context.Context) error {
	err := each(ctx, s.fresh, s.write)
	select {
	case all := <-s.fresh:
		s.write(ctx, all)
	default:
	}
	return err
}

func (s *samples) write(_ context.Context, all []speculation.Sample) {
	data, err := json.Marshal(all)
	if err == nil {
		err = renameio.WriteFile(s.path, append(data, '\n'), 0o600)
	}
	if err != nil {
		s.logger.Warn("samples of past jobs not written", slog.Any("error", err))
	}
}

// sizes are the sizes of input files; a file that cannot be looked at counts as empty.
func sizes(names []string) []int64 {
	all := make([]int64, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			all[i] = info.Size()
		}
	}
	return all
}
