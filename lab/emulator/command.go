package emulator

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// options select the node to run and with what; the flags of `powerlab node`.
type options struct {
	name, dir, domain    string
	nodes, slots, weight int
	join                 []string
	keyFile              string
	brakeKeyFile         string
	scheduler            string
	bin                  string
	throttle             string
	restartDelay         time.Duration
	noPowerd, noWorker   bool
	bmc                  bool
}

// NewNodeCommand is `powerlab node NAME`, with `powerlab node exec` below it.
func NewNodeCommand() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Run one emulated node",
		Long: `Runs one emulated node until it is stopped. The node simulates the physics of a one-socket server
of 241 W behind the kernel's file tree, and runs powerd and a scheduler worker. Its processes really
are slowed down when its limits require it.`,
		Example: "  powerlab node n01 --dir /tmp/lab --nodes 4 --join 127.0.0.1:7402 --key-file /tmp/lab/gossip.key --scheduler 127.0.0.1:7410\n" +
			"  powerlab node n01 --dir /tmp/lab --no-powerd --no-worker --bmc",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.name = args[0]
			if err := opts.complete(); err != nil {
				return err
			}
			return run(cmd.Context(), opts, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), func(description string) {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "node %s is ready\n%s\n", opts.name, description)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&opts.nodes, "nodes", 1, "number of nodes that share this host; each owns 0.75 x CPUs / nodes")
	flags.StringSliceVar(&opts.join, "join", nil, "gossip address of any member (repeatable)")
	flags.StringVar(&opts.keyFile, "key-file", "", "gossip key file; without it the node joins no cluster and stays at its fail-safe cap")
	flags.StringVar(&opts.brakeKeyFile, "brake-key-file", "", "file of trusted public keys for signed brakes; without it only a leader can brake the node")
	flags.StringVar(&opts.scheduler, "scheduler", "", "scheduler address of the worker; empty runs no worker")
	flags.IntVar(&opts.slots, "slots", 4, "number of tasks that the worker runs at the same time")
	flags.StringVar(&opts.domain, "domain", "rack/r1", "power domain of the node")
	flags.StringVar(&opts.bin, "bin", "", "folder of the programs (default: next to powerlab)")
	flags.StringVar(&opts.throttle, "throttle", "auto", "how the node's processes are slowed down: auto, cgroup or signals")
	flags.IntVar(&opts.weight, "weight", 1, "CPU weight of the nodes' processes, relative to the host's other processes (cgroup)")
	flags.DurationVar(&opts.restartDelay, "restart-delay", 2*time.Second, "delay before a powerd or worker that exited is restarted")
	flags.BoolVar(&opts.noPowerd, "no-powerd", false, "do not start powerd")
	flags.BoolVar(&opts.noWorker, "no-worker", false, "do not start a worker")
	flags.BoolVar(&opts.bmc, "bmc", false, "emulate a BMC on loopback and let powerd use it")
	addDir(cmd, &opts.dir)
	cmd.AddCommand(newExecCommand())
	return cmd
}

func addDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "lab", "folder that contains a folder per node")
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

// complete checks the flags and fills in what depends on this process.
func (o *options) complete() (err error) {
	switch {
	case !nodeName.MatchString(o.name):
		return cli.Usage("invalid node name %q: use letters, digits, dots and dashes", o.name)
	case !slices.Contains([]string{"auto", "cgroup", "signals"}, o.throttle):
		return cli.Usage("unknown --throttle %q: must be auto, cgroup or signals", o.throttle)
	case o.nodes < 1 || o.slots < 1:
		return cli.Usage("--nodes %d, --slots %d: both must be at least 1", o.nodes, o.slots)
	case o.weight < 1 || o.weight > 100:
		return cli.Usage("--weight %d: must be from 1 to 100", o.weight)
	case len(o.join) > 0 && o.keyFile == "":
		return cli.Usage("--join needs --key-file: all gossip members share a key")
	}
	if o.bin == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		o.bin = filepath.Dir(self)
	}
	for _, path := range []*string{&o.keyFile, &o.brakeKeyFile} {
		if *path != "" && err == nil {
			*path, err = filepath.Abs(*path)
		}
	}
	return err
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
			code, err := execute(cmd.Context(), dir, args[0], args[1:])
			if err == nil && code != 0 {
				err = &cli.Error{Code: "program", Exit: code, Message: fmt.Sprintf("%s on node %s: exit code %d", args[1], args[0], code)}
			}
			return err
		},
	}
	addDir(cmd, &dir)
	return cmd
}
