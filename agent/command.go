package agent

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// NewCommand is powerd's command line.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "powerd",
		Short: "Hold this node at its power cap",
		Long: "powerd holds this node at the cap that its lease grants, and at its fail-safe cap without one.\n" +
			"It saves every limit before it first writes it, and puts it back when the node is released.",
		Example: "  powerd run --config /etc/headroom/powerd.yaml\n  powerd status\n  powerd limit restore",
	}
	root.AddCommand(
		newRunCommand(), newStatusCommand(), newCheckCommand(), newZoneCommand(), newLimitCommand(), newFreqCommand(), newSensorCommand(),
		newLeaseCommand(), newSprintCommand(), newMeasureCommand(), newRecordCommand(), newTopCommand(),
		newConfigCommand(), newDebugCommand(), newDocsCommand(), newVersionCommand(),
	)
	return root
}

func newRunCommand() *cobra.Command {
	var p place
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Start the agent",
		Example: "  powerd run --config /etc/headroom/powerd.yaml\n  powerd run --config n01/powerd.yaml --log-level debug",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			log, err := newLog(cmd.ErrOrStderr(), cfg)
			if err != nil {
				return err
			}
			smallProcess()
			return Run(cmd.Context(), cfg, log)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&p.logLevel, "log-level", "", "debug, info, warn or error, instead of the configured one")
	return cmd
}

const (
	// memoryGoal keeps the process inside its 20 MB: 13 of them are the program's
	// own pages.
	memoryGoal = 12 << 20
	gcPercent  = 50
)

// smallProcess makes the Go runtime spend little: powerd wakes up a few times a
// second for some microseconds, and a second thread that looks for work would
// cost more than the work.
func smallProcess() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryGoal)
}

func newLog(w io.Writer, cfg Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, cli.Usage("log level: %w", err)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With(slog.String("node", cfg.Node)), nil
}

func newVersionCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  powerd version\n  powerd version -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.IsJSON() {
				return out.JSON(cmd.OutOrStdout(), versionJSON{"Version", "v1", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "powerd %s %s %s/%s\n", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
