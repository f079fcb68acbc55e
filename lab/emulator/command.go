package emulator

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/emulator/kernel"
)

// NewNodeCommand is `powerlab node NAME`, with `powerlab node exec` below it.
func NewNodeCommand() *cobra.Command {
	var opts options
	var looks looks
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Run one emulated node",
		Long: `Runs one emulated node until it is stopped. The node simulates the physics of a server behind the
kernel's file tree, and runs powerd and a scheduler worker. Its processes really are slowed down
when its limits require it.

Machine shapes:
` + shapeHelp(),
		Example: "  powerlab node n01 --dir /tmp/lab --nodes 4 --join 127.0.0.1:7402 --key-file /tmp/lab/gossip.key --scheduler 127.0.0.1:7410\n" +
			"  powerlab node n01 --dir /tmp/lab --no-powerd --no-worker\n" +
			"  powerlab node n02 --dir /tmp/lab --shape client-psys-mmio --tree fuse --bmc",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = args[0]
			var err error
			if opts.Shape, err = looks.shape(); err != nil {
				return err
			}
			return runNode(cmd, opts)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.Nodes, "nodes", 1, "number of nodes that share this host; each owns 0.75 x CPUs / nodes")
	flags.StringSliceVar(&opts.Join, "join", nil, "gossip address of any member (repeatable)")
	flags.StringVar(&opts.KeyFile, "key-file", "", "gossip key file; without it the node joins no cluster and stays at its fail-safe cap")
	flags.StringVar(&opts.BrakeKeyFile, "brake-key-file", "", "file of trusted public keys for signed brakes; without it only a leader can brake the node")
	flags.StringVar(&opts.Scheduler, "scheduler", "", "scheduler address of the worker; empty runs no worker")
	flags.IntVar(&opts.Slots, "slots", 4, "number of tasks that the worker runs at the same time")
	flags.StringVar(&opts.Domain, "domain", "rack/r1", "power domain of the node")
	flags.StringVar(&opts.Bin, "bin", "", "folder of the programs (default: next to powerlab)")
	flags.StringVar(&opts.Throttle, "throttle", "auto", "how the node's processes are slowed down: auto, cgroup or signals")
	flags.IntVar(&opts.Weight, "weight", 1, "CPU weight of the nodes' processes, relative to the host's other processes (cgroup)")
	flags.DurationVar(&opts.RestartDelay, "restart-delay", 2*time.Second, "delay before a powerd or worker that exited is restarted")
	flags.BoolVar(&opts.NoPowerd, "no-powerd", false, "do not start powerd")
	flags.BoolVar(&opts.NoWorker, "no-worker", false, "do not start a worker")
	flags.StringVar(&opts.Tree, "tree", "files", "emulated file tree: files (values only), fuse (mounted, with the kernel's errors; needs root) or auto (fuse if possible)")
	flags.StringVar(&looks.name, "shape", kernel.ShapeNames()[0], "machine shape: "+strings.Join(kernel.ShapeNames(), ", "))
	flags.IntVar(&looks.sockets, "sockets", 0, "number of sockets (default: the shape's)")
	flags.StringVar(&looks.driver, "cpufreq", "", "cpufreq driver: "+strings.Join(kernel.Drivers(), ", ")+" or none (default: the shape's)")
	flags.BoolVar(&opts.BMC, "bmc", false, "emulate a BMC on loopback and let powerd use it")
	addDir(cmd, &opts.Dir)
	cmd.AddCommand(newExecCommand(), newFaultCommand())
	return cmd
}

// looks are the flags that select the node's machine.
type looks struct {
	name    string
	sockets int
	driver  string
}

// shape is the machine that the flags describe.
func (l looks) shape() (kernel.Shape, error) {
	shape, err := kernel.ShapeOf(l.name)
	if err != nil {
		return shape, cli.Usage("unknown --shape %q: must be one of %s", l.name, strings.Join(kernel.ShapeNames(), ", "))
	}
	if l.sockets != 0 {
		if shape, err = shape.WithSockets(l.sockets); err != nil {
			return shape, cli.Usage("--sockets %d: must be from 1 to 8", l.sockets)
		}
	}
	if l.driver != "" {
		if shape, err = shape.WithDriver(l.driver); err != nil {
			return shape, cli.Usage("unknown --cpufreq %q: must be one of %s, none", l.driver, strings.Join(kernel.Drivers(), ", "))
		}
	}
	return shape, nil
}

// shapeHelp lists the shapes.
func shapeHelp() string {
	var lines []string
	for _, s := range kernel.Shapes() {
		lines = append(lines, fmt.Sprintf("  %-17s %s", s.Name, s.About))
	}
	return strings.Join(lines, "\n")
}

func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "lab", "folder that contains a folder per node")
}

func runNode(cmd *cobra.Command, opts options) error {
	if err := complete(&opts); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	out := cmd.OutOrStdout()
	return run(cmd.Context(), opts, log, func(description string) {
		_, _ = fmt.Fprintf(out, "node %s is ready\n%s\n", opts.Name, description)
	})
}

// complete checks the flags and fills in what depends on this process.
func complete(opts *options) error {
	if !slices.Contains([]string{"auto", "cgroup", "signals"}, opts.Throttle) {
		return cli.Usage("unknown --throttle %q: must be auto, cgroup or signals", opts.Throttle)
	}
	if !slices.Contains([]string{"auto", "fuse", "files"}, opts.Tree) {
		return cli.Usage("unknown --tree %q: must be auto, fuse or files", opts.Tree)
	}
	if opts.Nodes < 1 || opts.Slots < 1 {
		return cli.Usage("--nodes %d, --slots %d: both must be at least 1", opts.Nodes, opts.Slots)
	}
	if opts.Weight < 1 || opts.Weight > 100 {
		return cli.Usage("--weight %d: must be from 1 to 100", opts.Weight)
	}
	if len(opts.Join) > 0 && opts.KeyFile == "" {
		return cli.Usage("--join needs --key-file: all gossip members share a key")
	}
	for _, file := range []*string{&opts.KeyFile, &opts.BrakeKeyFile} {
		if *file == "" {
			continue
		}
		path, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = path
	}
	if opts.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		opts.Bin = filepath.Dir(self)
	}
	return nil
}

func newExecCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "exec NAME --dir DIR -- CMD [ARGS]",
		Short: "Run a program on a running emulated node",
		Long: `Runs a program as a process of the node, with this terminal, environment and working directory. It
is slowed like the node's tasks, and its power counts as the node's. Signals are passed on, and the
exit code is the program's.`,
		Example: "  powerlab node exec n01 --dir /tmp/lab -- sha256sum /dev/zero",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := Exec(cmd.Context(), dir, args[0], args[1:])
			if err == nil && code != 0 {
				err = &cli.Error{Code: "program", Exit: code, Message: fmt.Sprintf("%s on node %s: exit code %d", args[1], args[0], code)}
			}
			return err
		},
	}
	addDir(cmd, &dir)
	return cmd
}
