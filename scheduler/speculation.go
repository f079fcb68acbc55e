package scheduler

import (
	"os"
	"slices"

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
		return config.Bad("one of ours, grass, gs, ras, late, mantri, none", "speculation.policy %q is unknown", s.Policy)
	}
	if _, err := parsePart(s.Xi); err != nil {
		return config.Bad("xi: 15% is the default; 0% takes no job as a sample", "speculation.xi %q must be from 0 to 1 (100%%)", s.Xi)
	}
	return nil
}

// rule is what the core decides on copies by.
func (s Speculation) rule() dispatch.Speculation {
	xi, _ := parsePart(s.Xi) // it was checked
	return dispatch.Speculation{Policy: speculation.Policy(s.Policy), Xi: xi}
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
