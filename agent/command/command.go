// Package command is powerd's command line.
//
// The one idea: a command asks the running powerd (agent.Client) and prints its answer.
// If none runs, read-only commands read the machine directly. An unknown value is "-" or
// null, never 0. Requested, written, effective and measured values are always separate.
//
// Guarantees: JSON fields are only added; every error has a cause, a hint and an exit code
// of package cli; every command has an example; commands that raise or remove a cap ask
// first. The manual pages and docs/metrics.md are generated from here.
//
// It makes no decision and writes no control: package agent does (Run, Restore, Probe), or
// the running powerd. One command starts a program: `powerd measure -- CMD`, as the user
// who typed it.
package command

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"headroom/agent"
	"headroom/agent/config"
	"headroom/dvfs"
	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/internal/manual"
)

// New returns powerd's command line, for cli.Run.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "powerd",
		Short: "Hold a node at its power cap",
		Long: "powerd holds this node at the cap that its lease grants, or at its fail-safe cap without a lease.\n" +
			"It saves every limit before it first writes it, and restores it when the node is released.\n\n" +
			"Commands that raise or remove a cap ask for confirmation; use --yes in a script.",
		Example: "  powerd check\n  powerd run --config /etc/headroom/powerd.yaml\n  powerd status",
	}
	root.AddCommand(
		newRunCommand(), newStatusCommand(), newCheckCommand(), newZoneCommand(), newLimitCommand(), newFreqCommand(), newSensorCommand(),
		newLeaseCommand(), newSprintCommand(), newMeasureCommand(), newRecordCommand(), newTopCommand(),
		newConfigCommand(), newDebugCommand(), manual.Command("powerd", func(string) (manual.Pages, error) { return generatedDocs(), nil }), newVersionCommand(),
	)
	return root
}

func newRunCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Start powerd",
		Long:    "Start powerd. With enforce: false in the configuration (the default) it observes: it measures, reports\nand shows what it would write, and writes nothing. It stops on SIGTERM and reads its keys again on SIGHUP.",
		Example: "  powerd run --config /etc/headroom/powerd.yaml\n  powerd run --config n01/powerd.yaml --log-level debug",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			smallProcess(dvfs.Count(cfg.Root))
			log, queue := newLog(cmd.ErrOrStderr(), cfg)
			defer queue.Close(logs.CloseWait)
			return agent.Run(cmd.Context(), cfg, log)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&p.logLevel, "log-level", "", "debug, info, warn or error (default: log_level in the configuration)")
	return cmd
}

const (
	// memoryGoal keeps the process below 20 MB, of which 13 MB are the program's own pages, and
	// policyGoal is what each frequency policy above policiesSmall may add: 40 MB with 2,048.
	memoryGoal    = 12 << 20
	policyGoal    = 6 << 10
	policiesSmall = 64
	gcPercent     = 50
)

// smallProcess limits the Go runtime: powerd wakes up a few times a second for some
// microseconds, and a second thread that looks for work would cost more than the work.
func smallProcess(policies int) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryGoal + policyGoal*int64(max(0, policies-policiesSmall)))
}

// newLog returns a text logger that adds the node's name to each line. A slow reader of
// the log does not block powerd.
func newLog(w io.Writer, cfg config.Config) (*slog.Logger, *logs.Queue) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // cfg has been validated, the level too
	log, queue := logs.New(w, level)
	return log.With(slog.String("node", cfg.Node)), queue
}

func newVersionCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  powerd version\n  powerd version -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), versionJSON{"Version", "v1", agent.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "powerd %s %s %s/%s\n", agent.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	out.Flags(cmd)
	return cmd
}

// versionJSON is `powerd version -o json`.
type versionJSON struct {
	Kind    string `json:"kind"`
	API     string `json:"api"`
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}
