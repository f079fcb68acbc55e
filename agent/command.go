package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// defaultConfig is where powerd looks for its configuration.
const defaultConfig = "/etc/headroom/powerd.yaml"

// place is how a command finds its node: a configuration file, and what of it is
// overridden.
type place struct {
	config   string
	root     string
	stateDir string
	logLevel string
}

func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.config, "config", defaultConfig, "configuration file")
	cmd.Flags().StringVar(&p.root, "root", "", "file system to look for sys, proc and etc in, instead of the configured one")
	cmd.Flags().StringVar(&p.stateDir, "state-dir", "", "state directory, instead of the configured one")
}

// load reads the configuration and lays the flags over it.
func (p *place) load() (Config, error) {
	cfg, err := LoadConfig(p.config)
	if err != nil {
		return Config{}, err
	}
	cfg.Root, cfg.StateDir = cmp.Or(p.root, cfg.Root), cmp.Or(p.stateDir, cfg.StateDir)
	cfg.LogLevel = cmp.Or(p.logLevel, cfg.LogLevel)
	return cfg, cfg.Validate()
}

// state is the state directory; a flag alone is enough, without a configuration.
func (p *place) state() (string, error) {
	if p.stateDir != "" {
		return p.stateDir, nil
	}
	cfg, err := p.load()
	return cfg.StateDir, err
}

// NewCommand is powerd's command line.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "powerd",
		Short: "Hold this node at its power cap",
		Long: "powerd holds this node at the cap that its lease grants, and at its fail-safe cap without one.\n" +
			"It saves every limit before it first writes it, and puts it back when the node is released.",
		Example: "  powerd run --config /etc/headroom/powerd.yaml\n  powerd status\n  powerd limit restore",
	}
	root.AddCommand(newRunCommand(), newStatusCommand(), newLimitCommand(), newZoneCommand(), newConfigCommand(), newVersionCommand())
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
	level, err := cfg.level()
	if err != nil {
		return nil, cli.Usage("log level: %w", err)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})).With(slog.String("node", cfg.Node)), nil
}

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check or print the configuration",
		Example: "  powerd config example > powerd.yaml\n  powerd config check --config powerd.yaml",
	}
	var p place
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration as run would", Example: "  powerd config check --config powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := p.load()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "ok  %s: node %s in %s, fail-safe cap %s of at most %s\n",
				p.config, cfg.Node, cfg.Domain, cli.Watts(cfg.Power.FailSafe), cli.Watts(cfg.Power.Max))
			return err
		},
	}
	p.flags(check)
	example := &cobra.Command{
		Use: "example", Short: "Print a configuration with every key", Example: "  powerd config example > powerd.yaml", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), ExampleConfig)
			return err
		},
	}
	cmd.AddCommand(check, example)
	return cmd
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  powerd version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "powerd %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// callAgent runs one call to the agent's socket with a deadline.
func callAgent[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseWait+askWait)
	defer cancel()
	return call(ctx)
}
