package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/config"
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
	// brakeWaits bound the first and the second request to a server for the brake; zero for the constants.
	brakeWaits [2]time.Duration

	// socketNamed reports whether the operator named the socket.
	socketNamed func() bool

	peers *rpc.Peers
	// leader is the address that answered last: the next request begins there.
	leader string
	// stderr takes notes while a request waits.
	stderr func() io.Writer
}

func (o *operator) flags(cmd *cobra.Command) {
	o.stderr = cmd.ErrOrStderr
	f := cmd.PersistentFlags()
	f.StringVar(&o.addr, "addr", os.Getenv("HEADROOM_ADDR"), "RPC addresses of servers, comma separated (HEADROOM_ADDR); without it, those of client.yaml, or else the unix socket of this machine's server")
	o.socketNamed = func() bool { return f.Changed("socket") }
	f.StringVar(&o.socket, "socket", defaultSocket, "unix socket of this machine's server")
	f.StringVar(&o.files.CA, "ca", os.Getenv("HEADROOM_CA"), "file of the cluster's certificate authority (HEADROOM_CA)")
	f.StringVar(&o.files.Cert, "cert", os.Getenv("HEADROOM_CERT"), "file of your certificate (HEADROOM_CERT)")
	f.StringVar(&o.files.Key, "key", os.Getenv("HEADROOM_KEY"), "file of its key (HEADROOM_KEY)")
	f.StringVar(&o.tokenFile, "token-file", os.Getenv("HEADROOM_TOKEN_FILE"), "file of a token, instead of a certificate (HEADROOM_TOKEN_FILE)")
	f.DurationVar(&o.patience, "patience", rpc.ElectionWait, "how long to wait for an election while a server answers")
}

// reach returns the peers and addresses of the servers: by certificate or token if one is
// named, through this machine's socket without an address, in the clear otherwise.
func (o *operator) reach() (rpc.Peers, []string, error) {
	if o.peers != nil {
		return *o.peers, o.addrs(), nil
	}
	if err := o.settle(); err != nil {
		return rpc.Peers{}, nil, err
	}
	addrs := o.addrs()
	for _, addr := range addrs {
		if err := cli.HasPort("--addr", addr, "7400"); err != nil {
			return rpc.Peers{}, nil, err
		}
	}
	p, err := o.open(len(addrs) > 0)
	if err != nil {
		return rpc.Peers{}, nil, err
	}
	o.peers = &p
	return p, o.addrs(), nil
}

// settle takes what the operator did not name from the client configuration: nothing if a socket was named.
func (o *operator) settle() error {
	c, err := config.ReadClient(os.LookupEnv)
	if err != nil {
		return err
	}
	if o.addr == "" && !o.socketNamed() {
		o.addr = strings.Join(c.Coordinators, ",")
	}
	if o.addr == "" {
		return nil
	}
	if o.files.Cert == "" && o.files.Key == "" {
		o.tokenFile = cmp.Or(o.tokenFile, c.TokenFile)
	}
	c.Fill(&o.files)
	return nil
}

func (o *operator) open(addressed bool) (rpc.Peers, error) {
	switch {
	case o.tokenFile != "":
		return o.byToken()
	case o.files.Cert != "" || o.files.Key != "":
		k, err := secure.Open(o.files)
		if err != nil {
			return rpc.Peers{}, &cli.Error{Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(), Hint: "--ca, --cert and --key need one file each; coordinator tls inspect shows a file's content"}
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
		return rpc.Peers{}, &cli.Error{Code: "token", Exit: cli.ExitUsage, Err: err, Message: "--token-file: " + err.Error(), Hint: "coordinator token create prints a token; store it in a file that only you can read"}
	}
	p, err := rpc.TokenPeers(o.files.CA, strings.TrimSpace(string(text)))
	if err != nil {
		return rpc.Peers{}, &cli.Error{Code: "tls", Exit: cli.ExitUsage, Err: err, Message: err.Error(), Hint: "--ca needs the file of the cluster's certificate authority"}
	}
	return p, nil
}

// addrs returns the servers' addresses; a placeholder for the unix socket.
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

// fromLeader returns the addresses, the one that answered last first: a command with
// several requests waits once for unreachable servers, not once for each request.
func (o *operator) fromLeader(addrs []string) []string {
	if o.leader == "" {
		return addrs
	}
	rest := slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == o.leader })
	return append([]string{o.leader}, rest...)
}

// call sends a request to the leader. An error is a *cli.Error for the operator.
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

// callWithin is callOn with its own patience.
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
	search := rpc.Search{Addrs: o.fromLeader(addrs), Patience: patience, Refused: rpc.RefusedWait, Waiting: o.waiting(doing, patience), Probe: peers.Probe}
	addr, err := search.ToLeader(ctx, func(addr string) error {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		return rpc.Opened(func() (err error) {
			res, err = method(client(peers.HTTP(), peers.URL(addr), peers.Options()...), ctx, connect.NewRequest(req))
			return err
		})
	})
	if err != nil {
		return nil, o.explain(ctx, failure{err, doing, addr, reads(req)})
	}
	o.leader = addr
	return res.Msg, nil
}

// callDeadline bounds one request; AwaitBudget waits up to a minute inside it.
const callDeadline = 70 * time.Second

// waiting returns what prints that a command waits for an election; completion, whose
// patience is below a second, prints nothing.
func (o *operator) waiting(doing string, patience time.Duration) func() {
	if o.stderr == nil || patience < time.Second {
		return nil
	}
	return func() { cli.Notef(o.stderr(), "%s: no leader, waiting up to %v for an election", doing, patience) }
}

// reads reports whether a request changes nothing.
func reads(req any) bool {
	m, ok := req.(proto.Message)
	if !ok {
		return false
	}
	name := string(m.ProtoReflect().Descriptor().Name())
	return slices.ContainsFunc([]string{"Get", "List", "Explain", "Describe", "Await"}, func(verb string) bool { return strings.HasPrefix(name, verb) })
}

// failure is a request that failed.
type failure struct {
	err       error
	doing, at string
	reads     bool
}

// explain returns what the operator reads of a failed request.
func (o *operator) explain(ctx context.Context, f failure) error {
	e := rpc.AsCLI(f.err, f.doing, f.at)
	inClear := o.files.Cert == "" && o.tokenFile == "" && o.addr != ""
	switch {
	case inClear && rpc.WantsCertificate(e) && rpc.SpeaksTLS(ctx, f.at):
		e.Code, e.Exit, e.Message = "unauthenticated", cli.ExitDenied, fmt.Sprintf("%s: %s requires a certificate; nothing was done", f.doing, f.at)
		e.Hint = "use --ca, --cert and --key, or --ca and --token-file, or name them in client.yaml"
	case f.reads && e.Exit == cli.ExitUnknown:
		e.Exit, e.Hint = cli.ExitUnreachable, "nothing was changed; try again, or name another server with --addr"
	case e.Code == "no-leader":
		e.Message = o.noLeader(ctx, f, e.Message)
		if lowering(f.doing) {
			e.Hint += "; if power must fall now, coordinator brake set lowers every node to its fail-safe cap without a leader"
		}
	}
	return e
}

// lowering reports whether a command may be a cut.
func lowering(doing string) bool {
	return rules()[doing].kind == lowers || slices.Contains([]string{"budget set", "budget rollback", "node set", "domain set"}, doing)
}

// probeWait is how long a server may take to answer when no leader was found.
const probeWait = time.Second

// noLeader returns the message of a request that found no leader, with what the servers are that a
// server which answers knows; was is the message without that.
func (o *operator) noLeader(ctx context.Context, f failure, was string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*probeWait)
	defer cancel()
	r, err := o.clusterAt(f.at).ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{}))
	if err != nil {
		return was
	}
	reasons := make([]string, len(r.Msg.GetMembers()))
	var all sync.WaitGroup
	for i, m := range r.Msg.GetMembers() {
		if reasons[i] = m.GetRole(); m.GetRole() == roleAway {
			all.Go(func() { reasons[i] = o.whyAway(ctx, m.GetRpcAddress()) })
		}
	}
	all.Wait()
	return fmt.Sprintf("%s: no leader: %s", f.doing, memberReasons(r.Msg.GetMembers(), reasons))
}

// memberReasons names each server with its reason: "c1 follower; c2 10.0.0.2:7500, c3 10.0.0.3:7500 connection refused".
func memberReasons(members []*headroomv1.Member, reasons []string) string {
	var parts []string
	for i := 0; i < len(members); {
		j := i
		var same []string
		for ; j < len(members) && reasons[j] == reasons[i]; j++ {
			name := members[j].GetId()
			if members[j].GetRole() == roleAway {
				name += " " + members[j].GetRpcAddress()
			}
			same = append(same, name)
		}
		parts = append(parts, strings.Join(same, ", ")+" "+reasons[i])
		i = j
	}
	return strings.Join(parts, "; ")
}

// whyAway returns why the server at addr does not answer.
func (o *operator) whyAway(ctx context.Context, addr string) string {
	if len(o.addrs()) == 0 || o.addr == "" || addr == "" {
		return roleAway // the unix socket reaches one server only
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	_, err := o.clusterAt(addr).ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{Self: true}))
	if err == nil {
		return roleAway + " from the others"
	}
	return rpc.Tried{Addr: addr, Err: err}.Why()
}

// clusterAt is a client of the server at addr.
func (o *operator) clusterAt(addr string) headroomv1connect.ClusterServiceClient {
	return headroomv1connect.NewClusterServiceClient(o.peers.HTTP(), o.peers.URL(addr), o.peers.Options()...)
}
