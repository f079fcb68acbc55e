// Package cab repeats the experiments of CAB (Nabavinejad et al., "QoR-Aware Power Capping for
// Approximate Big Data Processing"): three sets of three MapReduce jobs on one server of 28
// containers, under fixed or stepping power caps, with the quality floors of Table I.
//
// The one idea: the decisions are made by the coordinators' own job loop, arbiter.Step, on the emulated plant, whose speed
// follows from its cap. Every variant, from the capped baseline to CAB as printed, is a setting of that loop, on the same tasks.
//
// Guarantees: the same seed gives the same numbers. There is no clock, no sleep and no network.
package cab

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
)

// NewCommand is `powerlab paper cab`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "cab", Seeds: 20,
		Short: "QoR-aware power capping for approximate big data processing (CAB)",
		Long: `Repeats CAB's experiments: three sets of three jobs on a server with 28 containers under power caps, with the
quality floors of Table I. The variants are: no cap, capped, modified ApproxHadoop, CAB as printed and as published,
equal shares, and ours. The server is the emulated plant in virtual time, and the job loop is the coordinators'. It
learns uncapped finish times from earlier runs of other tasks, for every variant alike.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) {
			measured, err := profiled(profileOf)
			if err != nil {
				return nil, err
			}
			s := whole(measured)
			trials, err := s.run(ctx, o.Seed, o.Seeds)
			f := &figures{trials: trials, measured: measured}
			if err != nil {
				return nil, err
			}
			return &papers.Result{Targets: f.targets()}, nil
		},
		Left: specs.Left("cab-yarn"),
	}.Command()
}
