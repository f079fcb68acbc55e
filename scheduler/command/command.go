// Package command is the command line of the scheduler program: the server, the worker,
// and the users' commands.
//
// The one idea: a command sends one request and prints the answer. It makes no
// decisions. Every change carries an idempotency key, so that it can be retried
// safely. All lists share one JSON envelope.
//
// It never reads the scheduler's files or a coordinator's state directly, only
// through the scheduler's API.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
	"headroom/internal/manual"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/scheduler/profiling"
	"headroom/scheduler/scale"
)

const (
	// addrEnv names the scheduler for users who do not want to repeat --addr.
	addrEnv = "HEADROOM_SCHEDULER_ADDR"
	// socketEnv names its unix socket in the same way.
	socketEnv = "HEADROOM_SCHEDULER_SOCKET"
	// addrDefault is where a scheduler listens by default.
	addrDefault = "127.0.0.1:7410"
	// callWait bounds one command; longer than the scheduler's own bounds, so that
	// its answer arrives.
	callWait = 15 * time.Second
	// takeoverWait is how long a command waits until a standby is active.
	takeoverWait = 10 * time.Second
	// completionWait bounds how long a shell waits for completions.
	completionWait = 500 * time.Millisecond
)

// New returns the root command of the scheduler program.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "scheduler",
		Short: "Run jobs by priority on power-capped nodes",
		Long: "Run jobs by priority on power-capped nodes. Each class has one buffer, which is first come, first served.\n" +
			"Jobs share the slots, or run one at a time under a discipline set in scheduler.yaml. A node with a lower cap runs\n" +
			"fewer tasks at once.",
		Example: "  scheduler submit words.yaml\n  scheduler job list\n  scheduler job cancel words-7f3a90c1 --reason \"wrong input\"",
		Args:    cobra.NoArgs,
	}
	root.AddCommand(runCommand(), workerCommand(), masterCommand(), submitCommand("scheduler submit"), jobCommand(), hidden(listCommand("scheduler list")), hidden(showCommand("scheduler show")), hidden(cancelCommand("scheduler cancel")), statusCommand(), drainCommand(), hookCommand(), driveCommand(), runTasksCommand(), startDriverCommand(), runDriverCommand(), lookUpCommand(), configCommand(), profiling.NewCommand(), scale.NewCommand(), manual.Command("scheduler", func(string) (manual.Pages, error) { return generatedDocs(), nil }), cli.VersionCommand("scheduler"))
	return root
}

// target is the scheduler that a command calls.
type target struct {
	addr, socket string
	files        secure.Files
	// named reports whether the caller named the address.
	named func() bool
	// settled is set once the client configuration has been read.
	settled bool
}

func (t *target) flags(cmd *cobra.Command) {
	addr := cmp.Or(os.Getenv(addrEnv), addrDefault)
	t.named = func() bool { return os.Getenv(addrEnv) != "" || cmd.Flags().Changed("addr") }
	cmd.Flags().StringVar(&t.addr, "addr", addr, "addresses of the schedulers, host:port, comma-separated; the active one is found ("+addrEnv+")")
	cmd.Flags().StringVar(&t.socket, "socket", os.Getenv(socketEnv), "unix socket of the scheduler on this machine, instead of --addr ("+socketEnv+")")
	certFlags(cmd, &t.files)
}

// settle takes what the caller did not name from the client configuration.
func (t *target) settle() error {
	if t.settled || t.socket != "" {
		return nil
	}
	c, err := config.ReadClient(os.LookupEnv)
	if err != nil {
		return err
	}
	if t.settled = true; len(c.Schedulers) > 0 && !t.named() {
		t.addr = strings.Join(c.Schedulers, ",")
	}
	c.Fill(&t.files)
	return nil
}

// certFlags are the files of the caller's certificate.
func certFlags(cmd *cobra.Command, files *secure.Files) {
	f := cmd.Flags()
	f.StringVar(&files.CA, "ca", os.Getenv("HEADROOM_CA"), "CA certificate of the cluster (HEADROOM_CA)")
	f.StringVar(&files.Cert, "cert", os.Getenv("HEADROOM_CERT"), "client certificate (HEADROOM_CERT)")
	f.StringVar(&files.Key, "key", os.Getenv("HEADROOM_KEY"), "key of the client certificate (HEADROOM_KEY)")
}

// openFiles reads the caller's certificate.
func openFiles(files secure.Files) (*secure.Keeper, error) {
	k, err := secure.Open(files)
	if err != nil {
		return nil, &cli.Error{
			Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(),
			Hint: "check the files of --ca, --cert and --key; coordinator tls inspect FILE shows a certificate",
		}
	}
	return k, nil
}

// startCertificate reads the certificate of a program that runs; addrs are where it serves.
func startCertificate(files secure.Files, of secure.Identity, logger *slog.Logger, addrs ...string) (*secure.Keeper, error) {
	return config.Certificate{Files: files, Of: of, Addrs: addrs}.Start(logger)
}

// peers returns the connection to the scheduler: through its socket or with a certificate
// where one is given, otherwise in plain text on loopback only.
func (t *target) peers() (rpc.Peers, error) {
	if err := t.settle(); err != nil {
		return rpc.Peers{}, err
	}
	open := ""
	for _, addr := range t.addrs() {
		if err := cli.HasPort("--addr", addr, "7410"); err != nil && t.socket == "" {
			return rpc.Peers{}, err
		}
		if !secure.Loopback(addr) {
			open = addr
		}
	}
	switch {
	case t.socket != "":
		return rpc.UnixPeers(t.socket), cli.SocketExists(t.socket)
	case t.files.Cert != "" || t.files.Key != "":
		k, err := openFiles(t.files)
		if err != nil {
			return rpc.Peers{}, err
		}
		return rpc.SecurePeers(k, secure.Scheduler), nil
	case open != "":
		e := cli.Usage("%s is not a loopback address and needs a client certificate", open)
		e.Hint = "use --ca, --cert and --key, or name them in client.yaml; coordinator tls cert create submitter/NAME creates a certificate"
		return rpc.Peers{}, e
	}
	return rpc.PlainPeers(), nil
}

// ask sends a request to the scheduler and returns failures as a *cli.Error.
func ask[Q, A any](parent context.Context, t *target, doing string, method func(headroomv1connect.SchedulerServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	peers, err := t.peers()
	if err != nil {
		return nil, err
	}
	defer peers.Close()
	ctx, cancel := context.WithTimeout(parent, callWait)
	defer cancel()
	var resp *connect.Response[A]
	at, err := t.search(peers).ToLeader(ctx, func(addr string) error {
		client := headroomv1connect.NewSchedulerServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
		return rpc.Opened(func() error {
			var err error
			resp, err = method(client, ctx, connect.NewRequest(q))
			return err
		})
	})
	if err != nil {
		return nil, t.failed(doing, at, err)
	}
	return resp.Msg, nil
}

// addrs are the schedulers' addresses.
func (t *target) addrs() []string { return strings.Split(t.addr, ",") }

// search looks for the active scheduler. Of several a standby takes over within takeoverWait.
func (t *target) search(peers rpc.Peers) rpc.Search {
	addrs := t.addrs()
	if len(addrs) == 1 || t.socket != "" {
		return rpc.Search{Addrs: addrs[:1]}
	}
	return rpc.Search{Addrs: addrs, Patience: takeoverWait, Refused: rpc.RefusedWait, Probe: peers.Probe}
}

// failed returns the error of a call to an address with its hint.
func (t *target) failed(doing, addr string, err error) error {
	if none, ok := errors.AsType[*rpc.NoLeaderError](err); ok {
		return &cli.Error{
			Code: "unreachable", Exit: cli.ExitUnreachable, Err: err, Message: fmt.Sprintf("%s: no scheduler is active: %s", doing, strings.ReplaceAll(none.Error(), "not leader", "on standby")),
			Hint: "scheduler status shows each of them; a standby takes over within 10 s",
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // an alert of TLS: nothing was carried out
		return &cli.Error{
			Code: "denied", Exit: cli.ExitDenied, Err: err, Message: fmt.Sprintf("%s: the scheduler refused the certificate: %v", doing, op.Err),
			Hint: "coordinator tls inspect shows the expiry and the CA of a certificate; coordinator tls denied lists denied certificates",
		}
	}
	e := rpc.AsCLI(err, doing, addr)
	if doing == doingList || doing == doingLogs {
		e = read(e)
	}
	if clear := t.socket == "" && t.files.Cert == "" && t.files.Key == ""; clear && e.Code == "unknown" {
		e.Hint = "if the scheduler requires TLS, use --ca, --cert and --key; " + e.Hint
	}
	return e
}

// Requests that change nothing.
const (
	doingList = "list"
	doingLogs = "logs"
)

// read is the error of a request that changes nothing: without an answer its outcome is known.
func read(e *cli.Error) *cli.Error {
	if e.Exit != cli.ExitUnknown {
		return e
	}
	known := *e
	known.Exit, known.Hint = cli.ExitUnreachable, "nothing was changed; try again, or name another scheduler with --addr"
	return &known
}

// change is the reason of a change and its idempotency key.
type change struct{ reason, requestID string }

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "reason, for the event log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key for safe retries (generated when empty)")
}

// fill generates a request id when the user gave none.
func (c *change) fill() {
	if c.requestID == "" {
		c.requestID = cli.RequestID()
	}
}

// jobCommand is the group of commands about jobs. "scheduler list", "show" and "cancel"
// are older names of its commands.
func jobCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "job", Short: "Submit, list, show, wait for or cancel jobs",
		Example: "  scheduler job list\n  scheduler job show words-7f3a90c1",
	}
	group.AddCommand(submitCommand("scheduler job submit"), listCommand("scheduler job list"), showCommand("scheduler job show"), cancelCommand("scheduler job cancel"), waitCommand("scheduler job wait"), watchCommand("scheduler job watch"), logsCommand("scheduler job logs"), jobRunCommand("scheduler job run"))
	return group
}

// hidden keeps an older name of a command out of help and manual.
func hidden(cmd *cobra.Command) *cobra.Command {
	cmd.Hidden = true
	return cmd
}

// jobIDs completes the id of a job.
func (t *target) jobIDs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
	defer cancel()
	resp, err := t.list(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, j := range resp.GetJobs() {
		if strings.HasPrefix(j.GetId(), typed) {
			ids = append(ids, j.GetId())
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
