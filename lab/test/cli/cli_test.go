// Package cli_test runs the command lines of all four programs as operators do:
// scripts of commands with what they print and the exit code they end with
// (testdata/*.txt), against live processes on free loopback ports.
//
// Beside testscript's own commands a script has
//
//	build-headroom       build the program headroom and put it on PATH
//	cluster N            start N coordinators and wait for a leader; HEADROOM_ADDR names them
//	server-wait NAME     start a coordinator that waits to be added to the cluster
//	server-start NAME    start a coordinator of the script again
//	ended NAME TEXT      wait until a process ends by itself with TEXT in its log
//	kill-process NAME    end a process of the script with SIGKILL, by its name (c1, n01, s1)
//	ports NAME...        free addresses of loopback, in these variables
//	expand FILE...       put the variables of the script into files
//	background NAME CMD... start any program under a name; its log is NAME.log
//	until-logged NAME RE wait until the log of a process matches
//	hangup NAME...       send processes of the script SIGHUP
//	node NAME [ARGS]     start an emulated node of the cluster with its powerd
//	scheduler-run        start a scheduler of the cluster; HEADROOM_SCHEDULER_ADDR names it
//	worker NAME          start the scheduler's worker of a node
//	until PATTERN CMD... repeat a command until its stdout matches
//	until-exits CODE CMD... repeat a command until it ends with this code
//	exits CODE CMD...    a command ends with this code
//	refused CODE CMD...  the same, and its stderr is exactly an error line and a hint line
//	remember, unchanged  what the log and the node hold, before and after a refused command
package cli_test

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	powerd "headroom/agent/command"
	coordinator "headroom/coordinator/command"
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
	scheduler "headroom/scheduler/command"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"coordinator": program(coordinator.New),
		"powerd":      program(powerd.New),
		"scheduler":   program(scheduler.New),
		"powerlab":    program(powerlab),
	})
}

func program(root func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(context.Background(), root(), os.Args[1:], os.Stdout, os.Stderr)) }
}

// powerlab is put together as lab/cmd/powerlab does.
func powerlab() *cobra.Command {
	root := &cobra.Command{Use: "powerlab", Short: "Emulated nodes, simulation, benchmarks and the demo", Example: "  powerlab demo"}
	root.AddCommand(emulator.NewNodeCommand(), simulation.NewCommand(), demo.NewCommand(), bench.NewCommand())
	root.AddCommand(apps.NewCommand(), solve.NewCommand(), faults.New(), record.NewCommand())
	root.AddCommand(papers.NewCommand(cab.NewCommand(), dias.NewCommand(), pythia.NewCommand(), grass.NewCommand(), pigeon.NewCommand(), ipso.NewCommand(), usba.NewCommand()), arbitration.NewCommand(), experiment.NewCommand(specs.All()))
	return root
}

// Every command follows its help: prints its result on stdout,
// everything else on stderr, ends with the documented exit code, and a refused
// command changes nothing.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true, Setup: setup, Cmds: commands(),
	})
}
