package bench

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// NewCommand is `powerlab bench`.
func NewCommand() *cobra.Command {
	var o options
	var out cli.Output
	var list, check bool
	cmd := &cobra.Command{
		Use:   "bench [--check [FILE]]",
		Short: "Benchmark Headroom on this machine",
		Long: `Measures Headroom on this machine. Each result is shown next to its goal, to a peer that does the
same work in the same run, and to the machine's noise. Some benchmarks start coordinators and a node
as processes on loopback, and stop them afterwards.

With --check, the result is compared with the range that each figure is expected in
(docs/benchmarks.md). FILE is the result of an earlier "powerlab bench -o json"; without it the
benchmarks run first. Figures that depend on the machine's speed are not judged if it was too noisy.

A missed goal is reported but is not a failure. The exit code is 8 if a benchmark could not be
measured, or with --check if a figure is out of its range.`,
		Example: "  powerlab bench\n  powerlab bench --only cap-step,cut -o json > result.json\n  powerlab bench --check result.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			w := cmd.OutOrStdout()
			var report *Report
			switch {
			case list:
				var rows [][]string
				items := []map[string]string{}
				for _, b := range suite() {
					for _, f := range b.figures {
						rows = append(rows, []string{b.name, f.name, f.what})
						items = append(items, map[string]string{"benchmark": b.name, "name": f.name, "what": f.what})
					}
				}
				if out.IsJSON() {
					return out.JSON(w, map[string]any{"kind": "BenchList", "api": "v1", "items": items})
				}
				return out.Table(w, []string{"BENCHMARK", "FIGURE", "WHAT"}, rows)
			case len(args) > 0 && !check:
				return cli.Usage("unexpected argument %q: a result is read only with --check", args[0])
			case check && o.quick:
				return cli.Usage("--check needs a whole run: the ranges are not of --quick")
			case len(args) > 0:
				report, err = readReport(args[0])
			default:
				o.progress = cmd.ErrOrStderr()
				report, _, err = measureAll(cmd.Context(), o, defaultCluster(o.quick))
			}
			if err != nil {
				return err
			}
			if check {
				return report.check(w, &out)
			}
			return report.print(w, &out, report)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.only, "only", nil, "run only these benchmarks or figures, comma-separated (see --list)")
	f.BoolVar(&list, "list", false, "list the benchmarks and exit")
	f.BoolVar(&check, "check", false, "compare the result with the expected ranges")
	f.BoolVar(&o.quick, "quick", false, "fewer repetitions and a smaller cluster; takes about a minute")
	f.StringVar(&o.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	out.Flags(cmd)
	cmd.AddCommand(newClusterCommand())
	return cmd
}

// readReport reads a saved result.
func readReport(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Failed("save a result with powerlab bench -o json", "cannot read the result: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil || r.Kind != "Bench" || r.Quick {
		return nil, cli.Usage("%s: not a result of powerlab bench -o json without --quick", path)
	}
	return &r, nil
}
