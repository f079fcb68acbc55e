package live

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/arbitration"
	"headroom/lab/papers"
)

const (
	// runsUsual is how often each variant runs, for how long jobs come in a run, and the same of --quick.
	runsUsual, withinUsual = 5, 5 * time.Minute
	runsQuick, withinQuick = 1, 150 * time.Second
)

// Engines are what can run the load, by the name of --engine.
func Engines() map[string]arbitration.Engine {
	return map[string]arbitration.Engine{"local": on("local", local), "spark": missing("spark"), "yarn": missing("yarn")}
}

// missing refuses an engine on which the load does not run yet.
func missing(name string) arbitration.Engine {
	return func(*cobra.Command, *arbitration.Real) error {
		e := cli.Usage("--engine %s is not supported yet: the mixed load runs on local", name)
		e.Hint = "use --engine local, or leave --engine out for the simulation; powerlab paper cab --engine yarn and powerlab paper dias --engine spark run the papers' loads for real"
		return e
	}
}

// on runs the comparison on an engine.
func on(name string, begin func(ctx context.Context, r *papers.Real) (*engine, error)) arbitration.Engine {
	return func(cmd *cobra.Command, o *arbitration.Real) error {
		ctx, options := cmd.Context(), &papers.Options{Seed: o.Seed, Out: o.Out, Bin: o.Bin}
		r, err := papers.NewReal("arbitrate", options, cmd.ErrOrStderr(), name, "make build puts all programs into bin/", "coordinator", "scheduler", "powerd", "powerlab")
		if err != nil {
			return err
		}
		defer r.Remove()
		if err := r.Keep(nil); err != nil { // before minutes have passed
			return err
		}
		e, err := begin(ctx, r)
		if err != nil {
			return err
		}
		l, runs := &lab{Real: r, engine: *e, within: withinUsual}, runsUsual
		if o.Quick {
			l.within, runs = withinQuick, runsQuick
		}
		found, err := l.compare(ctx, runs)
		if err != nil {
			return err
		}
		if err := found.print(cmd.OutOrStdout(), o.Output); err != nil {
			return err
		}
		return found.verdict()
	}
}

// compare runs all variants so often, and keeps what came of it after each run: later ones may be cut short.
func (l *lab) compare(ctx context.Context, runs int) (found *report, err error) {
	var results []result
	for run := range runs {
		for _, v := range turn(run) {
			one, err := l.once(ctx, v, run)
			if err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", run+1, v.name, err)
			}
			results = append(results, *one)
			found = reportOf(l.engine.name, l.Seed, says(l.within), results)
			if err := l.Keep(found.files()); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
