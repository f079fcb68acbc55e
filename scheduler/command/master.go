package command

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/access"
	"headroom/scheduler/master"
)

// masterOptions are the flags of a master.
type masterOptions struct {
	listen, metrics, dir, level string
	reserved, w                 string
	dev                         bool
	files                       secure.Files
}

func masterCommand() *cobra.Command {
	var cfg master.Config
	var o masterOptions
	cmd := &cobra.Command{
		Use:   "master",
		Short: "Dispatch the tasks of one group to its workers",
		Long: "Dispatch the tasks of one group to its workers: accept tasks from the scheduler and start them by priority on the\n" +
			"workers that connect with --scheduler. A group has one master, or two that name each other with --peer; then\n" +
			"one is on standby. A master needs no privileges and stores nothing: after a crash it learns from its workers\n" +
			"and the scheduler which tasks run.",
		Example: "  scheduler master --name m1 --group rack/r1 --listen 10.0.1.1:7420 --peer 10.0.1.2:7420 --reserved 10% --coordinators 10.0.0.10:7400,10.0.0.11:7400 --ca /etc/headroom/ca.crt --cert /etc/headroom/master/m1.crt --key /etc/headroom/master/m1.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, queue, err := newLogger(cmd.ErrOrStderr(), o.level)
			if err != nil {
				return err
			}
			defer queue.Close(logs.CloseWait)
			cfg.Logger = logger
			return o.run(cmd, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Name, "name", "", "name of this master, as in its certificate")
	f.StringVar(&cfg.Group, "group", "", "group: the domain of the power tree whose nodes the master serves")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7420", "address for workers, the scheduler and the other master, host:port")
	f.StringVar(&cfg.Peer, "peer", "", "address of the group's other master, host:port (default: none)")
	f.StringVar(&o.reserved, "reserved", "0", "slots for high-priority tasks only: a number, or a fraction of all slots such as 10%")
	f.StringVar(&o.w, "w", "strict", "while both priorities wait, at least one of every N tasks is of low priority; strict always starts high-priority tasks first")
	f.StringSliceVar(&cfg.Coordinators, "coordinators", nil, "addresses of coordinators, which report the caps of the nodes (default: caps are ignored)")
	f.StringVar(&o.metrics, "metrics", "", "address of the metrics endpoint for Prometheus, host:port (default: none)")
	f.StringVar(&o.dir, "dir", "", "folder that stores the denied certificates across restarts (default: read again from the coordinators)")
	certFlags(cmd, &o.files)
	f.BoolVar(&o.dev, "dev", false, "no TLS; loopback only")
	f.StringVar(&o.level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// run opens what the master serves on, and serves.
func (o *masterOptions) run(cmd *cobra.Command, cfg master.Config) error {
	var err error
	if cfg.Reserved, err = parseReserved(o.reserved); err != nil {
		return err
	}
	if cfg.W, err = parseW(o.w); err != nil {
		return err
	}
	if err := cfg.Check(); err != nil {
		return err
	}
	keeper, err := o.keeper(cfg)
	if err != nil {
		return err
	}
	cfg.Guard = access.New(keeper == nil, "", cfg.Logger)
	cfg.Peers = rpc.PlainPeers()
	if keeper != nil {
		cfg.Peers = rpc.SecurePeers(keeper, secure.Server, secure.Master)
		cfg.Denied = &access.Denied{Coordinators: cfg.Coordinators, Peers: cfg.Peers, Keeper: keeper, Guard: cfg.Guard, Logger: cfg.Logger}
		if o.dir != "" {
			cfg.Denied.File = filepath.Join(o.dir, access.DeniedFile)
		}
		if err := cfg.Denied.Load(); err != nil {
			return cli.Failed("--dir must name a folder that this user may read and write", "%w", err)
		}
	}
	if o.metrics != "" {
		if cfg.Metrics, err = rpc.Listen(o.metrics); err != nil {
			return err
		}
	}
	m, err := master.New(cfg)
	if err != nil {
		return errors.Join(err, closeMetrics(cfg))
	}
	l, err := rpc.Listen(o.listen)
	if err != nil {
		return errors.Join(err, closeMetrics(cfg))
	}
	if keeper != nil {
		l = rpc.SecureListener(l, keeper)
	} else {
		cfg.Logger.Warn("no TLS: anyone who can connect to this port can submit tasks", slog.String("address", o.listen))
	}
	return m.Run(cmd.Context(), l)
}

func closeMetrics(cfg master.Config) error {
	if cfg.Metrics == nil {
		return nil
	}
	return cfg.Metrics.Close()
}

// keeper is the master's certificate; nil in the clear, where that is asked for.
func (o *masterOptions) keeper(cfg master.Config) (*secure.Keeper, error) {
	usage := func(hint, format string, args ...any) error {
		e := cli.Usage(format, args...)
		e.Hint = hint
		return e
	}
	create := "coordinator tls cert create master/" + cfg.Name + " makes it"
	switch {
	case o.files.Cert != "" || o.files.Key != "":
		return startCertificate(o.files, secure.Identity{Role: secure.Master, Name: cfg.Name}, cfg.Logger, o.listen)
	case !o.dev:
		return nil, usage(create+"; --dev is for demos and tests on loopback", "a master needs a certificate: --ca, --cert, --key")
	}
	for _, addr := range append([]string{o.listen, cfg.Peer}, cfg.Coordinators...) {
		if addr != "" && !secure.Loopback(addr) {
			return nil, usage(create, "--dev talks in the clear, and %s is no loopback address", addr)
		}
	}
	return nil, nil
}

// parseReserved reads a number of slots or a percentage.
func parseReserved(text string) (master.Reserved, error) {
	bad := func() (master.Reserved, error) {
		e := cli.Usage("--reserved %q is neither a number of slots nor a percentage", text)
		e.Hint = "for example --reserved 4, or --reserved 10%"
		return master.Reserved{}, e
	}
	if number, ok := strings.CutSuffix(text, "%"); ok {
		part, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return bad()
		}
		return master.Reserved{Part: part / 100}, nil
	}
	slots, err := strconv.Atoi(text)
	if err != nil {
		return bad()
	}
	return master.Reserved{Slots: slots}, nil
}

// parseW reads the weight of low-priority tasks; 0 is strict.
func parseW(text string) (int, error) {
	if text == "strict" {
		return 0, nil
	}
	w, err := strconv.Atoi(text)
	if err != nil || w < 1 {
		e := cli.Usage("--w %q is neither a number from 1 on nor strict", text)
		e.Hint = "for example --w 20; --w strict lets high-priority tasks always go first"
		return 0, e
	}
	return w, nil
}
