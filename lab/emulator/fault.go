package emulator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/emulator/kernel"
)

// inject makes a fault act on the running node: one of the tree's, or "bmc" and one
// of the BMC's. "clear" ends those of both.
func (m *machine) inject(fault []string) error {
	name, args := fault[0], fault[1:]
	if name == "bmc" {
		return m.injectBMC(args)
	}
	err := m.node.Fault(name, args...)
	if err == nil && name == kernel.Clear && m.bmc != nil {
		err = m.bmc.inject(boardOK)
	}
	switch {
	case errors.Is(err, errNeedsFUSE):
		return &cli.Error{
			Code: "refused", Exit: cli.ExitRefused, Err: err,
			Message: fmt.Sprintf("node %s does not support the fault %q: its file tree is plain files, which only have values", m.opts.Name, strings.Join(fault, " ")),
			Hint:    "start the node with --tree fuse (needs root and /dev/fuse)",
		}
	case errors.Is(err, kernel.ErrFault):
		return &cli.Error{
			Code: "usage", Exit: cli.ExitUsage, Err: err, Message: strings.TrimPrefix(err.Error(), "kernel: "),
			Hint: "powerlab node fault --help lists the faults and their arguments",
		}
	}
	return err
}

func (m *machine) injectBMC(args []string) error {
	if m.bmc == nil {
		return &cli.Error{
			Code: "refused", Exit: cli.ExitRefused, Message: fmt.Sprintf("node %s has no BMC", m.opts.Name),
			Hint: "start the node with --bmc",
		}
	}
	if len(args) != 1 || m.bmc.inject(args[0]) != nil {
		return &cli.Error{
			Code: "usage", Exit: cli.ExitUsage, Err: errFault, Message: fmt.Sprintf("unknown BMC fault %q", strings.Join(args, " ")),
			Hint: "use lag, freeze, lie, hang, slow, restart, ok, or settings such as factor=0.5,slow=2s,busy,no-dcmi",
		}
	}
	return nil
}

// fault injects a fault into the running node whose folder is dir/name. The error
// is a *cli.Error: unreachable when the node does not run.
func fault(ctx context.Context, dir, name string, fault []string) error {
	conn, err := reach(ctx, dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	result, err := converse(conn, execRequest{Fault: fault})
	if err != nil {
		return &cli.Error{
			Code: "failed", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("no answer from node %s: %v", name, err),
			Hint: "see the messages of powerlab node",
		}
	}
	if result.Error != "" {
		return &cli.Error{Code: "fault", Exit: max(cli.ExitFailed, result.ExitCode), Message: result.Error, Hint: result.Hint}
	}
	return nil
}

func newFaultCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "fault NAME KIND [ARGS] --dir DIR",
		Short: "Inject a fault into a running emulated node",
		Long: `Injects a fault into a running emulated node. The fault lasts until "clear". ZONE is the folder or
the name of a zone, such as intel-rapl:0 or package-0; the default is every zone.

  fail-read [ZONE]      reading a counter fails with EINVAL (needs --tree fuse)
  fail-write [ZONE]     writing a limit fails with ENODATA (needs --tree fuse)
  permission [ZONE]     opening counters and limits fails with EACCES (needs --tree fuse)
  offline-cpu N         CPU N goes offline; its cpufreq policy returns EBUSY (needs --tree fuse)
  frozen [ZONE]         counters stop counting
  locked [silent]       limits are locked: a write succeeds but changes nothing, as on Linux 6.1
  locked refuse         limits are locked: a write fails with ENODATA (needs --tree fuse)
  drift WATTS [EVERY]   another program writes the package limits, once or periodically
  reset                 counters restart at 0
  jump                  counters advance by the energy of a thousand seconds at once
  hot [CELSIUS]         packages reach at least this temperature; they throttle at their trip point
  unbound               package limits read back as written, but do not limit power
  no-turbo              the firmware holds the turbo switch: EPERM (needs --tree fuse)
  bmc FAULT             lag, freeze, lie, hang, slow, restart, ok, or settings such as
                        factor=0.5,slow=2s,busy,no-dcmi
  clear                 remove all faults`,
		Example: "  powerlab node fault n01 drift 200W 1s --dir /tmp/lab\n" +
			"  powerlab node fault n01 bmc hang --dir /tmp/lab\n" +
			"  powerlab node fault n01 clear --dir /tmp/lab",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return fault(cmd.Context(), dir, args[0], args[1:])
		},
	}
	addDir(cmd, &dir)
	return cmd
}
