package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/cluster"
)

// options are the flags of `powerlab demo`.
type options struct {
	length time.Duration
	nodes  int
	seed   uint64
	out    string
	keep   bool
	bin    string
	engine string
}

// What runs the jobs.
const (
	engineLocal = "local"
	engineYARN  = "yarn"
	engineSpark = "spark"
)

// Bounds of the flags.
const (
	lengthLeast, lengthMost = 30 * time.Second, 10 * time.Minute
	nodesMost               = 32
	// socketLongest is what a unix socket's path may have (sockaddr_un holds 108
	// bytes with the closing NUL); outLongest leaves room for those of the nodes.
	socketLongest = 107
	outLongest    = socketLongest - len("/nodes/n32/state/powerd.sock")
	// engineLength and engineNodes are the defaults with an engine: real jobs take their time, and moves between
	// nodes show best on few.
	engineLength = 150 * time.Second
	engineNodes  = 2
)

// NewCommand is `powerlab demo`.
func NewCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a small cluster of real processes under a power budget",
		Long: `Runs a whole cluster on this machine and checks that it keeps its power budget. Use it to see
Headroom work, or to get a cluster to try commands on (--keep). It needs no root.

The demo starts three coordinators, emulated nodes with powerd and a worker, and a scheduler. It
runs word counts of two priorities, lowers the budget to 60 %, kills the leader and one powerd with
SIGKILL, and raises the budget again. A separate checker watches the budget from outside. The exit
code is 0 only if every guarantee held. Ctrl-C stops everything it started.

With --engine yarn or spark, an unmodified Hadoop or Spark runs the jobs on two emulated nodes. The
budget is lowered twice while jobs of two classes run. A table shows, step by step, what the
coordinators did: containers moved between queues, sprints, and dropped tasks. This needs a JDK and
"make hooks". The first run also needs the network, and Maven or Python (sh lab/test/install.sh).

Output: power.csv, power.svg and summary.json. power.csv has a row every 250 ms:
  budget_w    the site's committed budget
  reserved_w  what the leader charges to all nodes; empty while there is no leader
  held_w      sum of the caps that the nodes hold, read from their state and file trees, whether
              powerd is running or not
  measured_w  power of the nodes at the wall, mean over 1 s; followed by the same for each node`,
		Example: "  powerlab demo\n  powerlab demo --nodes 8 --out /tmp/demo\n  powerlab demo --keep\n  powerlab demo --engine yarn --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.complete(cmd.Flags().Changed); err != nil {
				return err
			}
			return run(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.engine, "engine", engineLocal, "engine that runs the jobs: local (a worker on each node), yarn or spark (a real cluster on the nodes)")
	f.DurationVar(&opts.length, "for", 60*time.Second, "duration after the start (default with yarn and spark: 2m30s). Jobs still running at the end are cancelled")
	f.IntVar(&opts.nodes, "nodes", 4, "number of emulated nodes (default with yarn and spark: 2)")
	f.Uint64Var(&opts.seed, "seed", 1, "seed of the jobs' input and of the node whose powerd is killed")
	f.StringVar(&opts.out, "out", "demo-out", "output folder; the output of an earlier demo is replaced")
	f.BoolVar(&opts.keep, "keep", false, "keep the cluster running at the end until Ctrl-C, and print commands to try")
	f.StringVar(&opts.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	return cmd
}

// complete checks the flags and fills in what depends on this process.
func (o *options) complete(changed func(flag string) bool) error {
	if o.engine != engineLocal && !changed("nodes") {
		o.nodes = engineNodes
	}
	if o.engine != engineLocal && !changed("for") {
		o.length = engineLength
	}
	switch {
	case !slices.Contains([]string{engineLocal, engineYARN, engineSpark}, o.engine):
		return cli.Usage("unknown --engine %q: must be %s, %s or %s", o.engine, engineLocal, engineYARN, engineSpark)
	case o.length < lengthLeast || o.length > lengthMost:
		return cli.Usage("--for %v: must be from %v to %v", o.length, lengthLeast, lengthMost)
	case o.nodes < 1 || o.nodes > nodesMost:
		return cli.Usage("--nodes %d: must be from 1 to %d", o.nodes, nodesMost)
	}
	var err error
	if o.bin == "" {
		o.bin, err = os.Executable()
		o.bin = filepath.Dir(o.bin)
	}
	if err == nil {
		o.bin, err = filepath.Abs(o.bin)
	}
	if err == nil {
		o.out, err = filepath.Abs(o.out)
	}
	if err != nil {
		return fmt.Errorf("demo: find the folders: %w", err)
	}
	if len(o.out) > outLongest {
		return cli.Usage("--out %s is too long: the paths of the nodes' sockets below it have at most %d characters, so it may have at most %d", o.out, socketLongest, outLongest)
	}
	if err := cluster.CheckPrograms(o.bin); err != nil {
		return cli.Failed("build the four programs with make build, or set their folder with --bin", "%w", err)
	}
	for _, jar := range o.setup().Engine.Files {
		if _, err := os.Stat(filepath.Join(o.bin, jar)); err != nil {
			return cli.Failed("build it with make hooks (sh lab/test/install.sh installs Maven and a JDK), or set its folder with --bin",
				"--engine %s needs %s in %s: %w", o.engine, jar, o.bin, err)
		}
	}
	return nil
}

// marker is the file by which a folder is known to be a demo's own, so that
// no other folder is ever replaced.
const marker = "headroom-demo"

// prepareOut makes the output folder afresh, unless it is no demo's.
func prepareOut(dir string) error {
	entries, err := os.ReadDir(dir)
	if _, missing := os.Stat(filepath.Join(dir, marker)); missing != nil && len(entries) > 0 {
		return &cli.Error{
			Code: "out", Exit: cli.ExitConflict, Message: fmt.Sprintf("%s is not empty and is not the output of an earlier demo", dir),
			Hint: "use a new or empty folder with --out",
		}
	}
	if os.IsNotExist(err) {
		err = nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	text := "Output of powerlab demo. The next demo with the same --out replaces this folder.\n"
	err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, marker), []byte(text), 0o644))
	if err != nil {
		return cli.Failed("use another folder with --out", "cannot use the output folder: %w", err)
	}
	return nil
}
