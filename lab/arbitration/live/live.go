package live

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"headroom/lab/arbitration"
	"headroom/lab/papers"
	"headroom/lab/runs"
)

// runsUsual is how often each variant runs, runsQuick the same of --quick.
const runsUsual, runsQuick = 5, 1

// Engines returns the engines that can run the load, by the name of --engine.
func Engines() map[string]arbitration.Engine {
	return map[string]arbitration.Engine{
		"local": on("local", local),
		"spark": on("spark", onSpark, jarSpark, jarSparkApps),
		"yarn":  on("yarn", onYARN, jarHadoop),
	}
}

// on runs the comparison on an engine.
func on(name string, prepare func(ctx context.Context, r *papers.Real) (*engine, error), jars ...string) arbitration.Engine {
	return func(cmd *cobra.Command, o *arbitration.Real) error {
		ctx, options := cmd.Context(), &papers.Options{Seed: o.Seed, Out: o.Out, Bin: o.Bin}
		hint := "build the programs with make build"
		if len(jars) > 0 {
			hint += " and the jars with make hooks"
		}
		r, err := papers.NewReal("arbitrate", options, cmd.ErrOrStderr(), name, hint, append([]string{"coordinator", "scheduler", "powerd", "powerlab"}, jars...)...)
		if err != nil {
			return err
		}
		defer r.Remove()
		if err := r.Keep(nil); err != nil { // before minutes have passed
			return err
		}
		e, err := prepare(ctx, r)
		if err != nil {
			return err
		}
		e.name = name
		l, count := &lab{Real: r, engine: *e, within: within(o.Quick)}, runsUsual
		if o.Quick {
			count = runsQuick
		}
		found, err := l.compare(ctx, count)
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
func (l *lab) compare(ctx context.Context, count int) (found *report, err error) {
	var results []result
	for run := range count {
		for _, v := range runs.Turn(l.engine.variants, run) {
			one, err := l.once(ctx, v, run)
			if err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", run+1, v.name, err)
			}
			results = append(results, *one)
			found = reportOf(&l.engine, l.Seed, l.engine.says(l.within), results)
			if err := l.Keep(found.files()); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
