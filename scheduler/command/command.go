// Package command is the scheduler program's command line: the server, the worker, and
// what users ask of the server.
//
// The one idea: a command asks and prints, it never decides. Every command that
// changes something sends one request with an idempotency key, so that repeating it
// is safe; every list has the same frame in JSON.
//
// What it never does: read the scheduler's folder, or a coordinator's state, other
// than by asking the scheduler.
package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/manual"
	"headroom/internal/rpc"
	"headroom/internal/secure"
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
)

// New is "scheduler": the server, the worker and the users' commands.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "scheduler",
		Short: "Run jobs by priority on nodes whose power is capped",
		Long: "Run jobs by priority on nodes whose power is capped: one buffer per class, first come first served\n" +
			"inside a class. Jobs share the slots, or run one at a time by a discipline of scheduler.yaml. A node with a lower cap gets fewer tasks at once.",
		Example: "  scheduler submit words.yaml\n  scheduler list\n  scheduler cancel words-7f3a90c1 --reason \"wrong input\"",
		Args:    cobra.NoArgs,
	}
	root.AddCommand(runCommand(), workerCommand(), masterCommand(), distributorCommand(), submitCommand(), listCommand(), showCommand(), cancelCommand(), drainCommand(), hookCommand(), driveCommand(), runTasksCommand(), startDriverCommand(), runDriverCommand(), configCommand(), manual.Command("scheduler", func(string) (manual.Pages, error) { return generatedDocs(), nil }), versionCommand())
	return root
}

// target is the scheduler that a command talks to.
type target struct {
	addr, socket string
	files        secure.Files
}

func (t *target) flags(cmd *cobra.Command) {
	addr := os.Getenv(addrEnv)
	if addr == "" {
		addr = addrDefault
	}
	cmd.Flags().StringVar(&t.addr, "addr", addr, "address of the scheduler, host:port ("+addrEnv+")")
	cmd.Flags().StringVar(&t.socket, "socket", os.Getenv(socketEnv), "the scheduler's unix socket on this machine, instead of --addr ("+socketEnv+")")
	certFlags(cmd, &t.files)
}

// certFlags are the files of the caller's certificate.
func certFlags(cmd *cobra.Command, files *secure.Files) {
	f := cmd.Flags()
	f.StringVar(&files.CA, "ca", os.Getenv("HEADROOM_CA"), "the cluster's authority (HEADROOM_CA)")
	f.StringVar(&files.Cert, "cert", os.Getenv("HEADROOM_CERT"), "your certificate (HEADROOM_CERT)")
	f.StringVar(&files.Key, "key", os.Getenv("HEADROOM_KEY"), "its key (HEADROOM_KEY)")
}

// openFiles reads the caller's certificate.
func openFiles(files secure.Files) (*secure.Keeper, error) {
	k, err := secure.Open(files)
	if err != nil {
		return nil, &cli.Error{
			Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(),
			Hint: "--ca, --cert and --key name three files; coordinator tls inspect shows what is in one",
		}
	}
	return k, nil
}

// peers is how the scheduler is reached: by its socket or by certificate where one is
// named, and otherwise in the clear, on this machine only.
func (t *target) peers() (rpc.Peers, error) {
	switch {
	case t.socket != "":
		return rpc.UnixPeers(t.socket), cli.SocketExists(t.socket)
	case t.files.Cert != "" || t.files.Key != "":
		k, err := openFiles(t.files)
		if err != nil {
			return rpc.Peers{}, err
		}
		return rpc.SecurePeers(k, secure.Scheduler), nil
	case !secure.Loopback(t.addr):
		e := cli.Usage("%s is no loopback address, and no certificate is named", t.addr)
		e.Hint = "--ca, --cert and --key name a certificate; coordinator tls cert create submitter/NAME makes one"
		return rpc.Peers{}, e
	}
	return rpc.PlainPeers(), nil
}

// ask sends a request to the scheduler, and turns a refusal into the two-line error.
func ask[Q, A any](parent context.Context, t *target, doing string, method func(headroomv1connect.SchedulerServiceClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	peers, err := t.peers()
	if err != nil {
		return nil, err
	}
	defer peers.Close()
	ctx, cancel := context.WithTimeout(parent, callWait)
	defer cancel()
	client := headroomv1connect.NewSchedulerServiceClient(peers.HTTP(), peers.URL(t.addr), peers.Options()...)
	var resp *connect.Response[A]
	err = rpc.Opened(func() error {
		var err error
		resp, err = method(client, ctx, connect.NewRequest(q))
		return err
	})
	if err != nil {
		return nil, t.failed(doing, err)
	}
	return resp.Msg, nil
}

// failed is the two-line error of a call.
func (t *target) failed(doing string, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // an alert of TLS: nothing was carried out
		return &cli.Error{
			Code: "denied", Exit: cli.ExitDenied, Err: err, Message: fmt.Sprintf("%s: the scheduler refused the certificate: %v", doing, op.Err),
			Hint: "coordinator tls inspect shows when a certificate ends and of which authority it is; coordinator tls denied lists those that are denied",
		}
	}
	e := rpc.AsCLI(err, doing, t.addr)
	if clear := t.socket == "" && t.files.Cert == "" && t.files.Key == ""; clear && e.Exit == cli.ExitUnknown {
		e.Hint = "a scheduler with certificates does not answer in the clear: --ca, --cert and --key name yours; " + e.Hint
	}
	return e
}

// change is who changes something, why, and the key that makes it happen once.
type change struct{ reason, requestID string }

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.reason, "reason", "", "why, for the event log")
	cmd.Flags().StringVar(&c.requestID, "request-id", "", "idempotency key: repeat it to repeat a command safely (made up when empty)")
}

// fill chooses a request id when the user gave none.
func (c *change) fill() {
	if c.requestID == "" {
		c.requestID = cli.RequestID()
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  scheduler version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "scheduler", cli.Version)
			return err
		},
	}
}
