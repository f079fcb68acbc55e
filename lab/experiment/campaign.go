package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"headroom/internal/cli"
	"headroom/lab/bench"
)

// runUsual is how long a run lasts at most on a machine of two cores, with the start of its cluster;
// runMost bounds it on slower ones.
const runUsual, runMost = 6 * time.Minute, 12 * time.Minute

type campaign struct {
	// dir is the folder of results, bin that of the programs, traces that of published traces.
	dir, bin, traces string
	// until is when the last run must have ended; zero for no bound.
	until time.Time
	note  func(format string, args ...any)
	// look is the noise of the machine now, and what machine it is.
	look func() (bench.Noise, string)
}

// run makes one pair of each spec in turn until no claim needs another run, or the time is over.
func (c *campaign) run(ctx context.Context, specs []*Spec) error {
	tried := map[string]map[attempt]bool{}
	for _, s := range specs {
		if s.Traces && c.traces == "" {
			return cli.Failed("set it with --traces; lab/docs/pigeon.md has their source", "campaign %s needs the folder of published traces", s.Name)
		}
		tried[s.Name] = map[attempt]bool{}
		for _, name := range append([]string{"coordinator", "scheduler", "powerd", "powerlab"}, s.Files...) {
			if _, err := os.Stat(filepath.Join(c.bin, name)); err != nil {
				return cli.Failed("build the programs with make build and the jars with make hooks, or set their folder with --bin", "campaign %s: %w", s.Name, err)
			}
		}
	}
	for made := true; made; {
		made = false
		for _, s := range specs {
			for range s.Variants {
				one, err := c.step(ctx, s, tried[s.Name])
				if err != nil {
					return err
				}
				made = made || one
			}
		}
	}
	return nil
}

// step makes the next run of a spec; false if there is none, or no time for it.
func (c *campaign) step(ctx context.Context, s *Spec, tried map[attempt]bool) (made bool, err error) {
	records, err := Read(c.dir, s.Name)
	if err != nil {
		return false, err
	}
	before, machine := c.look()
	todo, earlier, more := next(s, records, machine, tried)
	if !more {
		return false, nil
	}
	if takes := usual(records); !c.until.IsZero() && time.Now().Add(takes).After(c.until) {
		c.note("%s: no time for another run, which takes about %v", s.Name, takes.Round(time.Second))
		return false, nil
	}
	tried[todo] = true
	dir, err := os.MkdirTemp("", "headroom-"+s.Name+"-")
	if err != nil {
		return false, fmt.Errorf("campaign: folder of the run: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	note := func(format string, args ...any) {
		c.note("%s, seed %d, %s: %s", s.Name, todo.seed, todo.variant, fmt.Sprintf(format, args...))
	}
	note("begins")
	r := &Record{Spec: s.Name, Seed: todo.seed, Variant: todo.variant, Commit: commit(ctx, c.dir), Machine: machine, Date: time.Now().UTC(), Before: before}
	limited, cancel := context.WithTimeout(ctx, runMost)
	defer cancel()
	run := &Run{Variant: todo.variant, Seed: todo.seed, Dir: dir, Bin: c.bin, Traces: c.traces, Earlier: earlier, Note: note}
	if r.Figures, err = s.Run(limited, run); err != nil {
		return false, fmt.Errorf("%s, seed %d, %s: %w", s.Name, todo.seed, todo.variant, err)
	}
	r.TookS = time.Since(r.Date).Round(time.Second).Seconds()
	r.After, _ = c.look()
	r.Noisy = noisy(&r.Before, &r.After)
	if r.Noisy {
		note("the machine is too noisy; the run is kept but not counted")
	}
	note("ended after %.0f s", r.TookS)
	return true, Append(c.dir, r)
}

// look is the noise of the machine now, and what machine it is.
func look() (bench.Noise, string) {
	host, _ := os.Hostname() // two machines of one kind are two machines
	return bench.Look(), host + ", " + bench.Machine()
}

// usual is how long a run takes: as long as the longest so far.
func usual(records []Record) time.Duration {
	most := 0.0
	for i := range records {
		most = max(most, records[i].TookS)
	}
	return cmp.Or(time.Duration(most*float64(time.Second)), runUsual)
}

// commit is that of the sources in whose folder the results are; empty if it is not known.
func commit(ctx context.Context, dir string) string {
	git := func(args ...string) string {
		out, _ := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output() // not known where there is none
		return strings.TrimSpace(string(out))
	}
	is := git("rev-parse", "--short=12", "HEAD")
	if is != "" && git("status", "--porcelain", "--untracked-files=no", "--", ":(top,exclude)*.jsonl", ":(top)") != "" {
		is += "-dirty"
	}
	return is
}
