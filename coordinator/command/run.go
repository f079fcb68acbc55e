package command

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"headroom/coordinator"
	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/units"
)

func runCommand() *cobra.Command {
	var path, level string
	var d devServer
	cmd := &cobra.Command{
		Use: "run", Short: "Run a coordinator server", Args: cobra.NoArgs,
		Long: "Run one server of the cluster with its configuration file until it is stopped. Every connection requires a certificate.\n\n" +
			"With --dev it needs no configuration: it runs a cluster of one server on loopback for trials, with an initial budget and\n" +
			"without TLS, so every user of this machine can control it. Without --state-dir its state is deleted when it stops.",
		Example: "  coordinator run --config /etc/headroom/coordinator.yaml\n  coordinator run --dev --budget 1kW",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.on {
				return d.run(cmd, level)
			}
			if d.budget != devBudget || d.dir != "" || d.rpc != devAddr {
				return cli.Usage("--budget, --state-dir and --rpc require --dev; otherwise they are set in the configuration file")
			}
			cfg, err := coordinator.LoadConfig(path)
			if err != nil {
				return err
			}
			return runServer(cmd, cfg, level)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&level, "log-level", "", "debug, info, warn or error; overrides log_level in the file")
	d.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("dev", "config")
	return cmd
}

func runServer(cmd *cobra.Command, cfg coordinator.Config, level string) error {
	if level != "" {
		cfg.LogLevel = level
	}
	logger, queue, err := newLogger(cmd.ErrOrStderr(), cfg.LogLevel)
	if err != nil {
		return err
	}
	defer queue.Close(logs.CloseWait)
	return coordinator.Run(cmd.Context(), cfg, logger, func() { queue.Close(logs.CloseWait) })
}

// newLogger returns a logger that never makes the server wait for whoever reads it.
func newLogger(w io.Writer, level string) (*slog.Logger, *logs.Queue, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, cli.Usage("log level %q: must be debug, info, warn or error", level)
	}
	logger, queue := logs.New(w, l)
	return logger, queue, nil
}

const (
	devBudget = 1000 * units.Watt
	devAddr   = "127.0.0.1:7400"
)

// devServer is `coordinator run --dev`.
type devServer struct {
	on     bool
	dir    string
	rpc    string
	budget units.Power
}

func (d *devServer) flags(cmd *cobra.Command) {
	d.budget = devBudget
	f := cmd.Flags()
	f.BoolVar(&d.on, "dev", false, "run one server on loopback without configuration and TLS, for trials only")
	f.StringVar(&d.dir, "state-dir", "", "with --dev: keep the state in this folder (default: a temporary folder)")
	f.StringVar(&d.rpc, "rpc", devAddr, "with --dev: loopback address to listen on; the next two ports are used as well")
	f.Var(&d.budget, "budget", "with --dev: initial budget")
}

func (d *devServer) run(cmd *cobra.Command, level string) (err error) {
	dir, kept := d.dir, "kept"
	if dir == "" {
		kept = "deleted when the server stops"
		if dir, err = os.MkdirTemp("", "headroom-dev-"); err != nil {
			return fmt.Errorf("development server: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return &cli.Error{Code: "state-dir", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("--state-dir: %v", err), Hint: "name a folder that you can write to"}
	}
	cfg, err := coordinator.DevConfig(dir, d.rpc, d.budget)
	if err != nil {
		return err
	}
	out := cmd.ErrOrStderr()
	cli.Notef(out, "note: DEVELOPMENT SERVER: one server, no TLS, no authentication. Every user of this machine can control it.")
	cli.Notef(out, "note: budget %s for site/dev and rack/r1 if its log is empty; state in %s, %s", cli.Watts(d.budget), dir, kept)
	cli.Notef(out, "note: try  coordinator status --addr %s", d.rpc)
	cli.Notef(out, "note:      powerlab node n01 --no-worker --join %s --key-file %s --brake-key-file %s", cfg.Gossip.Bind, cfg.Gossip.KeyFile, cfg.Brake.PublicKeyFile)
	cli.Notef(out, "note: for production: coordinator tls ca create, coordinator config example, coordinator run --config")
	return runServer(cmd, cfg, level)
}
