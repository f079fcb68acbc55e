package command

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
)

// defaultConfig is where the packages look for the server's configuration.
const defaultConfig = "/etc/headroom/coordinator.yaml"

// defaultSocket is the unix socket of the server on this machine.
const defaultSocket = "/var/lib/headroom/coordinator/coordinator.sock"

// operator is one run of the operators' command line.
type operator struct {
	addr      string
	socket    string
	files     secure.Files
	tokenFile string
	patience  time.Duration
	out       cli.Output

	peers *rpc.Peers
	// leader is the address that answered last: the next request begins there.
	leader string
}

func (o *operator) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&o.addr, "addr", os.Getenv("HEADROOM_ADDR"), "RPC addresses of servers, comma separated (HEADROOM_ADDR); the unix socket of this machine's server when it is left out")
	f.StringVar(&o.socket, "socket", defaultSocket, "unix socket of this machine's server")
	f.StringVar(&o.files.CA, "ca", os.Getenv("HEADROOM_CA"), "the cluster's authority (HEADROOM_CA)")
	f.StringVar(&o.files.Cert, "cert", os.Getenv("HEADROOM_CERT"), "your certificate (HEADROOM_CERT)")
	f.StringVar(&o.files.Key, "key", os.Getenv("HEADROOM_KEY"), "its key (HEADROOM_KEY)")
	f.StringVar(&o.tokenFile, "token-file", os.Getenv("HEADROOM_TOKEN_FILE"), "a file with a token, instead of a certificate (HEADROOM_TOKEN_FILE)")
	f.DurationVar(&o.patience, "patience", 5*time.Second, "how long to wait for a leader")
}

// reach is how the servers are reached: by certificate or token where one is
// named, by this machine's socket where no address is, in the clear otherwise.
func (o *operator) reach() (rpc.Peers, []string, error) {
	addrs := o.addrs()
	if o.peers != nil {
		return *o.peers, addrs, nil
	}
	p, err := o.open(len(addrs) > 0)
	if err != nil {
		return rpc.Peers{}, nil, err
	}
	o.peers = &p
	return p, o.addrs(), nil
}

func (o *operator) open(addressed bool) (rpc.Peers, error) {
	switch {
	case o.tokenFile != "":
		return o.byToken()
	case o.files.Cert != "" || o.files.Key != "":
		k, err := secure.Open(o.files)
		if err != nil {
			return rpc.Peers{}, &cli.Error{Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(), Hint: "--ca, --cert and --key name three files; coordinator tls inspect shows what is in one"}
		}
		return rpc.SecurePeers(k, secure.Server), nil
	case addressed:
		return rpc.PlainPeers(), nil
	}
	err := cli.SocketExists(o.socket)
	switch {
	case err == nil:
		return rpc.UnixPeers(o.socket), nil
	case o.socket != defaultSocket: // the operator named it: nothing else is tried
		return rpc.Peers{}, err
	}
	o.addr = "127.0.0.1:7400"
	return rpc.PlainPeers(), nil
}

func (o *operator) byToken() (rpc.Peers, error) {
	text, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return rpc.Peers{}, &cli.Error{Code: "token", Exit: cli.ExitUsage, Err: err, Message: "--token-file: " + err.Error(), Hint: "coordinator token create prints a token; put it into a file that only you can read"}
	}
	p, err := rpc.TokenPeers(o.files.CA, strings.TrimSpace(string(text)))
	if err != nil {
		return rpc.Peers{}, &cli.Error{Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(), Hint: "--ca names the cluster's authority"}
	}
	return p, nil
}

// addrs are the servers to ask; one without a name when the unix socket is asked.
func (o *operator) addrs() []string {
	var out []string
	for a := range strings.SplitSeq(o.addr, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, a)
		}
	}
	if len(out) == 0 && o.peers != nil {
		return []string{"unix"}
	}
	return out
}

// fromLeader are the addresses with the one that answered last in front: a command
// of several requests waits once for servers that are away, not once a request.
func (o *operator) fromLeader(addrs []string) []string {
	if o.leader == "" {
		return addrs
	}
	rest := slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == o.leader })
	return append([]string{o.leader}, rest...)
}

// call sends one request to the server that leads and turns what comes back into what the operator reads.
func call[Req, Res any](
	ctx context.Context, o *operator, doing string, req *Req,
	method func(headroomv1connect.ClusterServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	return callOn(ctx, o, doing, req, headroomv1connect.NewClusterServiceClient, method)
}

// callOn is call for any of the servers' services.
func callOn[Client, Req, Res any](
	ctx context.Context, o *operator, doing string, req *Req,
	client func(connect.HTTPClient, string, ...connect.ClientOption) Client,
	method func(Client, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	return callWithin(ctx, o, doing, o.patience, req, client, method)
}

// callWithin is callOn with another patience for a leader.
func callWithin[Client, Req, Res any](
	ctx context.Context, o *operator, doing string, patience time.Duration, req *Req,
	client func(connect.HTTPClient, string, ...connect.ClientOption) Client,
	method func(Client, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	peers, addrs, err := o.reach()
	if err != nil {
		return nil, err
	}
	var res *connect.Response[Res]
	addr, err := rpc.ToLeader(ctx, o.fromLeader(addrs), patience, func(addr string) error {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		return rpc.Opened(func() (err error) {
			res, err = method(client(peers.HTTP(), peers.URL(addr), peers.Options()...), ctx, connect.NewRequest(req))
			return err
		})
	})
	if err != nil {
		return nil, o.explain(rpc.AsCLI(err, doing, addr))
	}
	o.leader = addr
	return res.Msg, nil
}

// callDeadline bounds one request; AwaitBudget waits up to a minute inside it.
const callDeadline = 70 * time.Second

// explain adds how to be let in to an error of a connection that was not.
func (o *operator) explain(err error) error {
	e, ok := errors.AsType[*cli.Error](err)
	unsaid := o.files.Cert == "" && o.tokenFile == "" && o.addr != ""
	if ok && unsaid && rpc.WantsCertificate(e) {
		e.Hint = "the server may ask for a certificate: --ca, --cert and --key, or --ca and --token-file"
	}
	return err
}
