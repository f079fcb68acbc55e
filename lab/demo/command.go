package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
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
		Short: "Show a small cluster of real processes holding its power budget",
		Long: "Starts three coordinators, emulated nodes with powerd and a worker, and a scheduler, as processes of\n" +
			"this machine; runs word counts of two priorities over real text; cuts the budget to 60 %, kills the\n" +
			"leader and one powerd with SIGKILL, raises the budget again; and judges from outside whether the budget\n" +
			"was kept. Needs no root. Ends by itself; exit code 0 only when no promise was broken. Ctrl-C ends\n" +
			"everything that it started.\n\n" +
			"With --engine yarn or spark an unmodified Hadoop or Spark runs the jobs, on two emulated nodes: the budget\n" +
			"steps down twice under jobs of two classes, and what the coordinators do about it (containers that move\n" +
			"between queues, sprints, tasks that are dropped) stands in a table by step. It needs a JDK, and once Maven or\n" +
			"Python and the network (sh test/install.sh), and make hooks.\n\n" +
			"Writes power.csv, power.svg and summary.json. In power.csv, every 250 ms: budget_w is the site's budget as\n" +
			"last committed; reserved_w what the leader charges all nodes, empty while no leader answers (nothing is\n" +
			"unmanaged here); held_w the sum of the caps that the nodes hold, from their own state and file trees,\n" +
			"whether powerd lives or not; measured_w what the nodes draw at the wall, mean over 1 s; then each node's.",
		Example: "  powerlab demo\n  powerlab demo --nodes 8 --out /tmp/demo\n  powerlab demo --keep\n  powerlab demo --engine yarn --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.complete(cmd.Flags().Changed); err != nil {
				return err
			}
			if opts.engine != engineLocal {
				return runEngine(cmd.Context(), opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return run(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.engine, "engine", engineLocal, "what runs the jobs: local (a worker on each node), yarn or spark (a real cluster on the nodes)")
	f.DurationVar(&opts.length, "for", 75*time.Second, "length of the whole demo, with yarn and spark of the part after the start (default there: 2m30s); jobs that have not ended by then are cancelled")
	f.IntVar(&opts.nodes, "nodes", 4, "how many emulated nodes (default with yarn and spark: 2)")
	f.Uint64Var(&opts.seed, "seed", 1, "chooses the text of the jobs, and the node whose powerd is killed")
	f.StringVar(&opts.out, "out", "demo-out", "folder for the output; a folder of an earlier demo is replaced")
	f.BoolVar(&opts.keep, "keep", false, "leave the cluster running at the end, with yarn and spark until Ctrl-C, and print the commands to try")
	f.StringVar(&opts.bin, "bin", "", "folder of the programs (default: that of powerlab)")
	f.StringVar(&opts.throttle, "throttle", "auto", "what slows the nodes' processes: auto, cgroup or signals")
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
		return cli.Usage("--engine %q is none of %s, %s, %s", o.engine, engineLocal, engineYARN, engineSpark)
	case o.length < lengthLeast || o.length > lengthMost:
		return cli.Usage("--for is %v; it must be from %v to %v", o.length, lengthLeast, lengthMost)
	case o.nodes < 1 || o.nodes > nodesMost:
		return cli.Usage("--nodes is %d; it must be from 1 to %d", o.nodes, nodesMost)
	case !slices.Contains([]string{"auto", "cgroup", "signals"}, o.throttle):
		return cli.Usage("--throttle %q is none of auto, cgroup, signals", o.throttle)
	}
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("demo: find the programs: %w", err)
		}
		o.bin = filepath.Dir(self)
	}
	var err error
	if o.bin, err = filepath.Abs(o.bin); err == nil {
		o.out, err = filepath.Abs(o.out)
	}
	if err != nil {
		return fmt.Errorf("demo: find the folders: %w", err)
	}
	if len(o.out) > outLongest {
		return cli.Usage("--out %s is too long: the nodes' sockets below it may have at most %d characters, it at most %d", o.out, socketLongest, outLongest)
	}
	return binaries(o.bin)
}

// marker is the file by which a folder is known to be a demo's own, so that
// nobody's other folder is ever replaced.
const marker = "headroom-demo"

// prepareOut makes the output folder afresh.
func prepareOut(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		return cli.Failed("--out names the folder for the output", "cannot use the output folder: %w", err)
	case len(entries) > 0:
		if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
			return &cli.Error{
				Code: "out", Exit: cli.ExitConflict, Message: fmt.Sprintf("%s is not empty and not of an earlier demo", dir),
				Hint: "name a new or empty folder with --out",
			}
		}
		if err := clearOut(dir, entries); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cli.Failed("--out names the folder for the output", "cannot make the output folder: %w", err)
	}
	text := "Output of powerlab demo. The next demo with the same --out replaces this folder.\n"
	if err := os.WriteFile(filepath.Join(dir, marker), []byte(text), 0o644); err != nil {
		return cli.Failed("--out names the folder for the output", "cannot write to the output folder: %w", err)
	}
	return nil
}

// clearOut empties the folder of an earlier demo, unless that still runs.
func clearOut(dir string, entries []os.DirEntry) error {
	if pids := keptPIDs(dir); len(pids) > 0 {
		return &cli.Error{
			Code: "running", Exit: cli.ExitConflict, Message: fmt.Sprintf("a demo that was kept still runs in %s", dir),
			Hint: "stop it with " + filepath.Join(dir, stopScript) + ", or name another folder with --out",
		}
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return cli.Failed("name another folder with --out", "cannot clear the folder of an earlier demo: %w", err)
		}
	}
	return nil
}
