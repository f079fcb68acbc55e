package command

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"headroom/internal/cgroup"
	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/local"
	"headroom/systemd"
)

func runCommand() *cobra.Command {
	var path, level string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the scheduler",
		Long: "Run the scheduler. Accepted jobs are in the coordinators' log: after a crash they come back,\n" +
			"finished tasks are recognised by their outputs and the rest runs again. Of several schedulers of a\n" +
			"cluster one is active; the others are on standby, and one of them takes over within 10 s when it is lost.",
		Example: "  scheduler run --config /etc/headroom/scheduler.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := scheduler.LoadConfig(path)
			if err != nil {
				return err
			}
			if level != "" {
				cfg.LogLevel = level
			}
			logger, queue, err := newLogger(cmd.ErrOrStderr(), cfg.LogLevel)
			if err != nil {
				return err
			}
			defer queue.Close(logs.CloseWait)
			l, err := rpc.Listen(cfg.Listen)
			if err != nil {
				return err
			}
			return scheduler.Run(cmd.Context(), *cfg, l, logger)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVar(&level, "log-level", "", "debug, info, warn or error (default: log_level of the configuration)")
	return cmd
}

func workerCommand() *cobra.Command {
	cfg := local.Config{Version: cli.Version, Hold: true}
	var (
		level string
		files secure.Files
		dev   bool
	)
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run tasks on this node",
		Long: "Run tasks on this node: pull them from the scheduler and run them as processes. The worker needs\n" +
			"no privileges. When it ends its tasks end with it and run elsewhere.",
		Example: "  scheduler worker --node n03 --scheduler 10.0.0.20:7410 --slots 4 --dir /var/lib/headroom/worker --ca /etc/headroom/ca.crt --cert /etc/headroom/worker/n03.crt --key /etc/headroom/worker/n03.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !jobfile.ValidName(cfg.Node) {
				e := cli.Usage("--node %q is not a node's name", cfg.Node)
				e.Hint = "give the name that powerd.yaml has, for example --node n03"
				return e
			}
			if len(cfg.Schedulers) == 0 {
				return cli.Usage("--scheduler has no address")
			}
			if cfg.Slots < 1 || cfg.Slots > jobfile.SlotsMax {
				return cli.Usage("--slots is %d; it must be from 1 to %d", cfg.Slots, jobfile.SlotsMax)
			}
			cfg.Dir = cmp.Or(cfg.Dir, workerDir(os.Getenv))
			var err error
			var queue *logs.Queue
			if cfg.Logger, queue, err = newLogger(cmd.ErrOrStderr(), level); err != nil {
				return err
			}
			defer queue.Close(logs.CloseWait)
			if cfg.Peers, err = workerPeers(cfg, files, dev); err != nil {
				return err
			}
			if err := cfg.Users.Check(); err != nil {
				return cli.Usage("--task-user: %v", err)
			}
			if cfg.Users.Sockets == "" {
				cfg.Logger.Warn("tasks run as the worker's user and can read what it reads; --task-sockets separates them")
			}
			w, err := local.New(cfg)
			if err != nil {
				return cli.Failed("--dir must name a folder that belongs to this user and that nobody else may write to", "%w", err)
			}
			return w.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Node, "node", "", "name of this node, as in powerd.yaml")
	f.StringSliceVar(&cfg.Schedulers, "scheduler", []string{addrDefault}, "addresses of the schedulers, host:port, of which the active one is used; or of the masters of the node's group, in order of preference")
	f.IntVar(&cfg.Slots, "slots", runtime.NumCPU(), "maximum number of tasks at once")
	f.StringVar(&cfg.Dir, "dir", "", "the worker's own folder, for temporary files of tasks; nobody else may write to it (default: $STATE_DIRECTORY, or headroom-worker in $XDG_STATE_HOME or ~/.local/state)")
	f.StringVar(&cfg.Users.Sockets, "task-sockets", "", "folder of the sockets that run tasks as other users (default: tasks run as this user)")
	f.StringToStringVar(&cfg.Users.BySubmitter, "task-user", nil, "SUBMITTER=USER: the user that runs a submitter's tasks, repeatable (default: "+local.DefaultUser+" runs all)")
	certFlags(cmd, &files)
	f.BoolVar(&dev, "dev", false, "connect without TLS to a scheduler on loopback that runs with dev: true")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// workerDir returns the default folder of a worker: the service manager's, or one in the user's home. A folder in /tmp is
// whoever's makes it first.
func workerDir(getenv func(string) string) string {
	if dir := getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "headroom-worker")
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local/state/headroom-worker")
	}
	return ""
}

// runTasksCommand is the process of a task user, started by its socket.
func runTasksCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "run-tasks",
		Short:   "Run tasks for the worker as this user (started by a socket unit)",
		Example: "  scheduler run-tasks    # ExecStart= of headroom-task@.service",
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, queue, err := newLogger(cmd.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			defer queue.Close(logs.CloseWait)
			l, err := systemd.Listener(os.Getenv, os.Getpid())
			if err != nil {
				return cli.Failed("the unit headroom-task@USER.socket starts it", "%w", err)
			}
			room, _ := cgroup.Open(cgroup.Options{Delegated: true}) // an earlier process leaves nothing: its unit has ended
			if why := room.Can().GetTrouble(); why != "" {
				logger.Warn("tasks have no cgroup; the unit needs Delegate=yes", slog.String("reason", why))
			}
			return local.Serve(cmd.Context(), l, room, logger)
		},
	}
}

// workerPeers is how a worker reaches its scheduler: with the certificate of its node,
// and in the clear only where that is asked for.
func workerPeers(cfg local.Config, files secure.Files, dev bool) (rpc.Peers, error) {
	usage := func(hint, format string, args ...any) (rpc.Peers, error) {
		e := cli.Usage(format, args...)
		e.Hint = hint
		return rpc.Peers{}, e
	}
	create := "coordinator tls cert create worker/" + cfg.Node + " makes it"
	switch {
	case files.Cert != "" || files.Key != "":
		k, err := startCertificate(files, secure.Identity{Role: secure.Worker, Name: cfg.Node}, cfg.Logger)
		if err != nil {
			return rpc.Peers{}, err
		}
		return rpc.SecurePeers(k, secure.Scheduler, secure.Master), nil
	case !dev:
		return usage(create+"; --dev is for demos and tests on loopback", "a worker needs a certificate: --ca, --cert, --key")
	}
	for _, addr := range cfg.Schedulers {
		if !secure.Loopback(addr) {
			return usage(create, "--dev talks in the clear, and %s is no loopback address", addr)
		}
	}
	return rpc.PlainPeers(), nil
}

// newLogger returns a logger that never waits for its reader.
func newLogger(w io.Writer, level string) (*slog.Logger, *logs.Queue, error) {
	l, err := scheduler.LogLevel(level)
	if err != nil {
		e := cli.Usage("log level %q is unknown", level)
		e.Hint = "one of debug, info, warn, error"
		return nil, nil, e
	}
	logger, queue := logs.New(w, l)
	return logger, queue, nil
}
