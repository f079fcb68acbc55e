package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/jobs/dispatch"
	"headroom/jobs/speculation"
)

// Speculation is the speculation section: how jobs with a deadline or an error bound choose between waiting tasks and
// copies of running ones.
type Speculation struct {
	// Policy is ours, grass, gs, ras, late, mantri or none.
	Policy string `yaml:"policy"`
	// Xi is the fraction of such jobs that run only gs or ras, "15%", as samples for grass and ours.
	Xi string `yaml:"xi"`
}

// speculationDefaults returns the paper's fraction of samples, and the policy that uses caps.
func speculationDefaults() Speculation {
	return Speculation{Policy: string(speculation.Ours), Xi: "15%"}
}

// speculates returns the policies that can be configured.
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

// rule returns the rule for copies in the core.
func (s Speculation) rule() dispatch.Speculation {
	xi, _ := config.ParsePart(s.Xi) // it was checked at load
	return dispatch.Speculation{Policy: speculation.Policy(s.Policy), Xi: xi}
}

// samplesKept bounds the kept samples, the newest ones: as many as are used.
const samplesKept = 2000

// samples are samples of past jobs for switching policies, in a file of the scheduler's folder. Lost samples cost time,
// never a job: failures are only logged.
type samples struct {
	path   string
	logger *slog.Logger
	// all belongs to the loop. fresh are samples to be written: writing takes time, and the loop does not wait for it.
	all   []speculation.Sample
	fresh chan []speculation.Sample
}

// readSamples reads the samples in a folder; none if the file does not exist.
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

// samplesSize bounds the file of samples: a few hundred bytes each.
const samplesSize = 1 << 20

// keep adds a sample, if there is one, and triggers writing. Only the loop calls it.
func (s *samples) keep(x *speculation.Sample) {
	if x == nil {
		return
	}
	s.all = append(s.all, *x)
	s.all = s.all[max(0, len(s.all)-samplesKept):]
	select {
	case <-s.fresh: // older ones that have not been written yet
	default:
	}
	s.fresh <- slices.Clone(s.all)
}

// run writes the file when there are new samples, until ctx ends.
func (s *samples) run(ctx context.Context) error {
	err := takeAll(ctx, s.fresh, s.write)
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
