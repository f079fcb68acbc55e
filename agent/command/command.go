// Package command is powerd's command line: what an operator types on a node, and
// what answers on the screen or in JSON.
//
// The one idea: a command asks the running powerd (agent.Client) and shows its
// answer. Where none runs, commands that only look read the machine itself, and
// what is unknown is shown as such: "-" or null, never 0. Requested, written,
// effective and measured are kept apart on every screen.
//
// Guarantees: JSON only ever gains fields; every refusal is a cause, a way out and
// an exit code of package cli; each command shows an example. The manual pages and
// docs/metrics.md are generated from here.
//
// It decides nothing and writes no control: whatever changes the machine is done
// by package agent (Run, Restore, Probe) or asked of the powerd that runs. One
// command starts a program: `powerd measure -- CMD`, as the user who typed it.
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
	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/internal/manual"
)

// New is powerd's command line, for cli.Run.
func New() *cobra.Command {
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
		newConfigCommand(), newDebugCommand(), manual.Command("powerd", func(string) (manual.Pages, error) { return generatedDocs(), nil }), newVersionCommand(),
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
			smallProcess()
			log, queue := newLog(cmd.ErrOrStderr(), cfg)
			defer queue.Close(logs.CloseWait)
			return agent.Run(cmd.Context(), cfg, log)
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

// newLog writes as text what powerd says, each line with the node's name. Whoever
// reads it never makes powerd wait.
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
