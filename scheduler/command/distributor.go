package command

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/oklog/run"
	"github.com/spf13/cobra"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/logs"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler"
	"headroom/scheduler/access"
	"headroom/scheduler/distributor"
	"headroom/scheduler/jobfile"
)

// distributorOptions are the flags of a distributor.
type distributorOptions struct {
	path, name, listen, level string
	files                     secure.Files
}

func distributorCommand() *cobra.Command {
	var o distributorOptions
	cmd := &cobra.Command{
		Use:   "distributor",
		Short: "Split the tasks of other programs over the groups",
		Long: "Split the tasks of other programs over the groups of workers that section dispatch of the configuration names.\n" +
			"Programs speak to it as to a master. The scheduler needs none: it splits the tasks of its own jobs by itself.\n" +
			"Run several where one does not suffice. It keeps nothing: tasks of a program that ends are taken back.",
		Example: "  scheduler distributor --config /etc/headroom/scheduler.yaml --name d1 --listen 10.0.0.21:7430 --ca /etc/headroom/ca.crt --cert /etc/headroom/distributor/d1.crt --key /etc/headroom/distributor/d1.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := scheduler.LoadConfig(o.path)
			if err != nil {
				return err
			}
			return o.run(cmd, cfg)
		},
	}
	f := cmd.Flags()
	configFlag(cmd, &o.path)
	f.StringVar(&o.name, "name", "", "name of this distributor, as in its certificate")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7430", "address for programs that submit tasks, host:port")
	certFlags(cmd, &o.files)
	f.StringVar(&o.level, "log-level", "", "debug, info, warn or error (default: log_level of the configuration)")
	return cmd
}

// run opens what the distributor serves on, and serves.
func (o *distributorOptions) run(cmd *cobra.Command, cfg *scheduler.Config) error {
	keeper, err := o.check(cfg)
	if err != nil {
		return err
	}
	logger, queue, err := newLogger(cmd.ErrOrStderr(), cmp.Or(o.level, cfg.LogLevel))
	if err != nil {
		return err
	}
	defer queue.Close(logs.CloseWait)
	l, err := rpc.Listen(o.listen)
	if err != nil {
		return err
	}
	c := cfg.Dispatch.Distributor()
	c.Name, c.Incarnation, c.WaitMost, c.Logger = o.name, uint64(time.Now().UnixNano()), cfg.Dispatch.MaxTasks, logger
	guard := access.New(keeper == nil, "", logger)
	parts := []func(context.Context) error{}
	if keeper != nil {
		l = rpc.SecureListener(l, keeper)
		c.Peers = rpc.SecurePeers(keeper, secure.Scheduler)
		denied := &access.Denied{Coordinators: cfg.Coordinators, Peers: rpc.SecurePeers(keeper, secure.Server), Keeper: keeper, Guard: guard, Logger: logger}
		if err := denied.Load(); err != nil {
			return err
		}
		defer denied.Peers.Close()
		parts = append(parts, denied.Watch)
	}
	d, err := distributor.New(c)
	if err != nil {
		return err
	}
	front := distributor.NewFront(d)
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewMasterServiceHandler(front, append(rpc.HandlerOptions(), connect.WithInterceptors(guard))...))
	parts = append(parts, front.Run, func(ctx context.Context) error { return rpc.Serve(ctx, l, mux) })
	return together(cmd.Context(), parts)
}

// together runs the parts; when one ends, all do.
func together(parent context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	var g run.Group
	for _, part := range parts {
		g.Add(func() error { return part(ctx) }, func(error) { cancel() })
	}
	if err := g.Run(); err != nil && parent.Err() == nil {
		return err
	}
	return nil
}

// check returns the distributor's certificate, nil in the clear, or what is wrong.
func (o *distributorOptions) check(cfg *scheduler.Config) (*secure.Keeper, error) {
	usage := func(hint, format string, args ...any) (*secure.Keeper, error) {
		e := cli.Usage(format, args...)
		e.Hint = hint
		return nil, e
	}
	create := "coordinator tls cert create scheduler/" + o.name + " makes it"
	switch {
	case !cfg.Dispatch.On():
		return usage("dispatch.groups names the groups and the addresses of their masters", "%s names no groups", o.path)
	case !jobfile.ValidName(o.name):
		return usage("for example --name d1", "--name %q is no name of a distributor", o.name)
	case o.files.Cert == "" && o.files.Key == "" && cfg.Dev && secure.Loopback(o.listen):
		return nil, nil
	case o.files.Cert == "" && o.files.Key == "":
		return usage(create+"; dev: true in the configuration is for demos and tests on loopback", "a distributor needs a certificate: --ca, --cert, --key")
	}
	k, err := openFiles(o.files)
	if err != nil {
		return nil, err
	}
	if who := k.Identity(); who.Role != secure.Scheduler || who.Name != o.name {
		return usage(create, "--cert names %s; the distributor %s needs scheduler/%s", who, o.name, o.name)
	}
	return k, nil
}
