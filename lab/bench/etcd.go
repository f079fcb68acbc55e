package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/lab/cluster"
	"headroom/lease"
	"headroom/units"
)

const (
	// etcdServers is as many as there are coordinators.
	etcdServers = 3
	// etcdTTL is as long as our lease.
	etcdTTL = 10 * time.Second
	// etcdPatience bounds one exchange with etcd.
	etcdPatience = 5 * time.Second
)

// etcdGroup is a group of etcd servers on loopback, in a folder of its own.
type etcdGroup struct {
	dir      string
	clients  []string // addresses
	programs *cluster.Group
	servers  []*cluster.Program
}

// startEtcd starts the servers and waits until each of them serves.
func startEtcd(ctx context.Context, path, dir string) (*etcdGroup, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("bench: folder of etcd: %w", err)
	}
	ports, err := cluster.FreePorts(2 * etcdServers)
	if err != nil {
		return nil, err
	}
	programs, err := cluster.NewGroup(dir)
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	g := &etcdGroup{dir: dir, programs: programs}
	var peers []string
	for i := range etcdServers {
		g.clients = append(g.clients, ports[2*i])
		peers = append(peers, fmt.Sprintf("e%d=http://%s", i, ports[2*i+1]))
	}
	for i := range etcdServers {
		name, client, peer := "e"+strconv.Itoa(i), "http://"+ports[2*i], "http://"+ports[2*i+1]
		p, err := programs.Start(name, nil, path, "--name", name, "--data-dir", filepath.Join(dir, name+".etcd"),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-state", "new", "--initial-cluster-token", filepath.Base(dir),
			"--log-level", "error")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bench: %w", err), g.stop())
		}
		g.servers = append(g.servers, p)
	}
	for i, a := range g.clients {
		c := newEtcdClient(a)
		err := await(ctx, 20*time.Second, "etcd at "+a, func() bool { return c.grant(ctx, int64(1_000_000+i)) == nil })
		c.http.CloseIdleConnections()
		if err != nil {
			return nil, errors.Join(err, g.stop())
		}
	}
	return g, nil
}

// stop ends the servers, at once: nobody will read what they hold.
func (g *etcdGroup) stop() error { return g.programs.Close() }

// etcdClient speaks to one server over one connection.
type etcdClient struct {
	http            *http.Client
	grants, txns    *connect.Client[message, message]
	keepAliveStream *connect.Client[message, message]
}

func newEtcdClient(addr string) *etcdClient {
	c := &etcdClient{http: rpc.NewClient()}
	to := func(path string) *connect.Client[message, message] {
		return connect.NewClient[message, message](c.http, rpc.BaseURL(addr)+path, connect.WithGRPC(), connect.WithCodec(asIs{}))
	}
	c.grants, c.txns, c.keepAliveStream = to(etcdGrantPath), to(etcdTxnPath), to(etcdKeepAlivePath)
	return c
}

func (c *etcdClient) grant(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	_, err := c.grants.CallUnary(ctx, connect.NewRequest(grantRequest(id, int64(etcdTTL.Seconds()))))
	return err
}

// txn reports whether the comparison held.
func (c *etcdClient) txn(ctx context.Context, m *message) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	res, err := c.txns.CallUnary(ctx, connect.NewRequest(m))
	if err != nil {
		return false, err
	}
	held, _ := res.Msg.field(2)
	return held == 1, nil
}

// etcdNode does by etcd what a node does by its exchange: each second it renews its
// lease, and in one transaction it writes its report under that lease and reads its cap.
type etcdNode struct {
	client *etcdClient
	id     int64
	report []byte
	caps   string
	key    string
	alive  chan struct{} // an answer to a keepalive that its lease still runs
}

func newEtcdNode(i int, addr string) *etcdNode {
	name := fmt.Sprintf("n%05d", i)
	return &etcdNode{
		client: newEtcdClient(addr), id: int64(i + 1), report: reportBytes(), caps: "cap/" + name, key: "report/" + name,
		alive: make(chan struct{}, 1),
	}
}

// reportBytes is a heartbeat as our nodes send it.
func reportBytes() []byte {
	in, demand := int64(150*units.Watt), int64(170*units.Watt)
	stamp := stampOf(lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 3}, Seq: 12345})
	data, _ := proto.Marshal(&headroomv1.Heartbeat{ // these fields can always be encoded
		Number: 100, Highest: stamp, PowerUw: &in, DemandUw: &demand,
		Holding: &headroomv1.Holding{State: headroomv1.LeaseState_LEASE_STATE_HELD, Applied: stamp, CapUw: in, EffectiveUw: &in, FailSafeUw: int64(nodeLeast)},
	})
	return data
}

func stampOf(s lease.Stamp) *headroomv1.Stamp {
	return &headroomv1.Stamp{Epoch: &headroomv1.Epoch{Incarnation: s.Epoch.Incarnation, Term: s.Epoch.Term}, Seq: s.Seq}
}

// begin takes the lease and writes the cap that the node will read.
func (n *etcdNode) begin(ctx context.Context) error {
	if err := n.client.grant(ctx, n.id); err != nil {
		return err
	}
	_, err := n.client.txn(ctx, txnRequest(nil, putOp(n.caps, []byte("150000000"), 0)))
	return err
}

// run exchanges each second until ctx ends, beginning at wait; took is called with each
// exchange's time, and of one that failed.
func (n *etcdNode) run(ctx context.Context, wait time.Duration, took func(time.Duration, error)) {
	defer n.client.http.CloseIdleConnections()
	if !pause.For(ctx, wait) {
		return
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		n.session(ctx, tick.C, took)
		_ = n.begin(ctx) // its lease may have run out; the next exchange tells
	}
}

// session exchanges over one stream of keepalives until an exchange fails: etcd ends
// the stream when it cannot renew in time.
func (n *etcdNode) session(ctx context.Context, tick <-chan time.Time, took func(time.Duration, error)) {
	inner, cancel := context.WithCancel(ctx)
	stream := n.client.keepAliveStream.CallBidiStream(inner)
	unwatch := context.AfterFunc(inner, func() { _ = stream.CloseRequest() })
	defer unwatch()
	err := stream.Send(nil) // only the headers: the stream opens
	var receiving sync.WaitGroup
	receiving.Go(func() { n.receive(stream) })
	defer receiving.Wait()
	defer cancel()
	for err == nil {
		began := time.Now()
		if err = n.exchange(inner, stream); ctx.Err() == nil {
			took(time.Since(began), err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// exchange sends both side by side, and is over when both have been answered.
func (n *etcdNode) exchange(ctx context.Context, stream *connect.BidiStreamForClient[message, message]) error {
	select {
	case <-n.alive: // an answer that came too late for its exchange
	default:
	}
	if err := stream.Send(keepAliveRequest(n.id)); err != nil {
		return err
	}
	held, err := n.client.txn(ctx, txnRequest(existsCompare(n.caps), putOp(n.key, n.report, n.id), rangeOp(n.caps)))
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("bench: etcd: the transaction of %s: %w", n.key, errNotSo)
	}
	late := time.NewTimer(etcdPatience)
	defer late.Stop()
	select {
	case <-n.alive:
		return nil
	case <-late.C:
		return fmt.Errorf("bench: etcd: the keepalive of %s answered: %w after %v", n.key, errNotYet, etcdPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receive takes answers to keepalives: LeaseKeepAliveResponse{ID = 2, TTL = 3}.
func (n *etcdNode) receive(stream *connect.BidiStreamForClient[message, message]) {
	for {
		m, err := stream.Receive()
		if err != nil {
			return
		}
		if ttl, ok := m.field(3); ok && ttl > 0 {
			select {
			case n.alive <- struct{}{}:
			default:
			}
		}
	}
}

// burden is what a group bore from its nodes: how long exchanges took in s, the
// servers' CPU in s per s and node, and the bytes that one server wrote into its log, per s.
type burden struct {
	took     []float64
	cpu, log float64
	failed   int
	failure  error // one of those that failed
}

// errNoEtcd: there is no etcd to compare with.
var errNoEtcd = errors.New("etcd is not installed (apt-get install etcd-server)")

// findEtcd is where the program etcd is.
func findEtcd() (string, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return "", errNoEtcd
	}
	return path, nil
}

// etcdVersion is the program's own version output.
func etcdVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	if _, v, ok := strings.Cut(first, ": "); ok && err == nil {
		return "etcd " + v
	}
	return "etcd"
}

// bearEtcd puts the lease load of n nodes on etcd for a while.
func bearEtcd(ctx context.Context, path, dir string, n int, span time.Duration, note func(string, ...any)) (burden, error) {
	g, err := startEtcd(ctx, path, dir)
	if err != nil {
		return burden{}, err
	}
	defer func() {
		if err := g.stop(); err != nil {
			note("%v", err)
		}
	}()
	nodes := make([]*etcdNode, n)
	for i := range nodes {
		nodes[i] = newEtcdNode(i, g.clients[i%len(g.clients)])
		if err := nodes[i].begin(ctx); err != nil {
			return burden{}, fmt.Errorf("bench: etcd: lease of node %d: %w", i, err)
		}
	}
	note("etcd: %d leases, spread over %d servers, for %v", n, etcdServers, span)
	var mu sync.Mutex
	var b burden
	counts := false
	took := func(d time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !counts:
		case err != nil:
			b.failed++
			b.failure = err
		default:
			b.took = append(b.took, d.Seconds())
		}
	}
	inner, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for i, node := range nodes {
		running.Go(func() { node.run(inner, time.Duration(i)*beat/time.Duration(n), took) })
	}
	if !pause.For(ctx, warmUpSpan) {
		return burden{}, ctx.Err()
	}
	mu.Lock()
	counts = true
	mu.Unlock()
	b.cpu, b.log, err = watchServers(ctx, g.servers, func(i int) string { return filepath.Join(g.dir, fmt.Sprintf("e%d.etcd", i)) }, n, span)
	mu.Lock()
	defer mu.Unlock()
	counts = false
	return b, err
}

// warmUpSpan is how long a load runs before it is measured.
const warmUpSpan = 3 * time.Second

// watchServers lets servers work for a while: their CPU in s per s and node, and the bytes
// per s that each wrote into its log, on average.
func watchServers(ctx context.Context, servers []*cluster.Program, dir func(i int) string, n int, span time.Duration) (cpu, log float64, err error) {
	look := func() (spent time.Duration, bytes int64, err error) {
		for i, p := range servers {
			t, _, errCPU := cpuTime(p.Pid())
			size, errLog := logBytes(dir(i))
			spent, bytes, err = spent+t, bytes+size, errors.Join(err, errCPU, errLog)
		}
		return spent, bytes, err
	}
	spent, bytes, err := look()
	began := time.Now()
	if err == nil && !pause.For(ctx, span) {
		err = ctx.Err()
	}
	if err != nil {
		return 0, 0, err
	}
	spentAfter, bytesAfter, err := look()
	seconds := time.Since(began).Seconds()
	return (spentAfter - spent).Seconds() / seconds / float64(n), float64(bytesAfter-bytes) / seconds / float64(len(servers)), err
}
