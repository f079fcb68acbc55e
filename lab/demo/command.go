package demo

import (
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
	length   time.Duration
	nodes    int
	seed     uint64
	out      string
	keep     bool
	bin      string
	throttle string
	engine   string
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
	outLongest    = socketLongest - len("/nodes/n01/state/powerd.sock")
	// engineLength is the default of --for with an engine: real jobs take their time.
	engineLength = 150 * time.Second
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
runs word counts of two priorities over real text, lowers the budget to 60 %, kills the leader and
one powerd with SIGKILL, and raises the budget again. A separate checker watches the budget from
outside. The exit code is 0 only if every guarantee held. Ctrl-C stops everything it started.

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
	f.DurationVar(&opts.length, "for", 75*time.Second, "duration of the demo; with yarn and spark after the start (default there: 2m30s). Jobs still running at the end are cancelled")
	f.IntVar(&opts.nodes, "nodes", 4, "number of emulated nodes (default with yarn and spark: 2)")
	f.Uint64Var(&opts.seed, "seed", 1, "seed of the jobs' text and of the node whose powerd is killed")
	f.StringVar(&opts.out, "out", "demo-out", "output folder; the output of an earlier demo is replaced")
	f.BoolVar(&opts.keep, "keep", false, "keep the cluster running at the end (with yarn and spark until Ctrl-C), and print commands to try")
	f.StringVar(&opts.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	f.StringVar(&opts.throttle, "throttle", "auto", "how the nodes' processes are slowed down: auto, cgroup or signals")
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
	case !slices.Contains([]string{"auto", "cgroup", "signals"}, o.throttle):
		return cli.Usage("unknown --throttle %q: must be auto, cgroup or signals", o.throttle)
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
	return nil
}

// marker is the file by which a folder is known to be a demo's own, so that
// no other folder is ever replaced.
const marker = "headroom-demo"

// prepareOut makes the output folder afresh, unless it is no demo's or that of one that is still running.
func prepareOut(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return badOut(err)
	}
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil && len(entries) > 0 {
		return &cli.Error{
			Code: "out", Exit: cli.ExitConflict, Message: fmt.Sprintf("%s is not empty and is not the output of an earlier demo", dir),
			Hint: "use a new or empty folder with --out",
		}
	}
	if err := clearOut(dir, entries); err != nil {
		return err
	}
	text := "Output of powerlab demo. The next demo with the same --out replaces this folder.\n"
	if err = os.MkdirAll(dir, 0o755); err == nil {
		err = os.WriteFile(filepath.Join(dir, marker), []byte(text), 0o644)
	}
	if err != nil {
		return badOut(err)
	}
	return nil
}

// badOut is the error of an output folder that cannot be made, cleared or written to.
func badOut(err error) error {
	return cli.Failed("use another folder with --out", "cannot use the output folder: %w", err)
}

// clearOut empties the folder of an earlier demo, unless that is still running.
func clearOut(dir string, entries []os.DirEntry) error {
	if len(keptPIDs(dir)) > 0 {
		return &cli.Error{
			Code: "running", Exit: cli.ExitConflict, Message: fmt.Sprintf("a demo started with --keep is still running in %s", dir),
			Hint: "stop it with " + filepath.Join(dir, stopScript) + ", or use another folder with --out",
		}
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return badOut(err)
		}
	}
	return nil
}
