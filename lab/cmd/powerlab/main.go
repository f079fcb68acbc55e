// Command powerlab runs the demo, emulated nodes, simulations and benchmarks of
// Headroom. Its commands are in the packages below lab.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/apps"
	"headroom/lab/arbitration"
	"headroom/lab/bench"
	"headroom/lab/demo"
	"headroom/lab/emulator"
	"headroom/lab/experiment"
	"headroom/lab/experiment/specs"
	faults "headroom/lab/faults/command"
	"headroom/lab/papers"
	"headroom/lab/papers/cab"
	"headroom/lab/papers/dias"
	"headroom/lab/papers/grass"
	"headroom/lab/papers/ipso"
	"headroom/lab/papers/pigeon"
	"headroom/lab/papers/pythia"
	"headroom/lab/papers/usba"
	"headroom/lab/record"
	"headroom/lab/simulation"
	"headroom/lab/solve"
)

func main() {
	os.Exit(cli.Run(context.Background(), newRoot(), os.Args[1:], os.Stdout, os.Stderr))
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "powerlab",
		Short:   "Run emulated nodes, simulations, benchmarks and the demo of Headroom",
		Example: "  powerlab node n01 --dir /tmp/lab --no-powerd --no-worker",
	}
	root.AddCommand(emulator.NewNodeCommand())
	root.AddCommand(simulation.NewCommand())
	root.AddCommand(apps.NewCommand())
	root.AddCommand(demo.NewCommand())
	root.AddCommand(bench.NewCommand())
	root.AddCommand(record.NewCommand())
	root.AddCommand(papers.NewCommand(cab.NewCommand(), dias.NewCommand(), grass.NewCommand(), ipso.NewCommand(), pigeon.NewCommand(), pythia.NewCommand(), usba.NewCommand()))
	root.AddCommand(arbitration.NewCommand())
	root.AddCommand(experiment.NewCommand(specs.All()))
	root.AddCommand(solve.NewCommand())
	root.AddCommand(faults.New())
	root.AddCommand(cli.VersionCommand("powerlab"))
	return root
}
