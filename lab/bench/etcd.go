package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/pause"
	"headroom/internal/wire"
	"headroom/lab/cluster"
	"headroom/lease"
	"headroom/units"
)

const (
	// etcdServers is the number of coordinators.
	etcdServers = 3
	// etcdTTL is the length of our lease, s.
	etcdTTL = 10
	// etcdPatience bounds one exchange with etcd.
	etcdPatience = 5 * time.Second
)

// burden is the load that etcd bore: how long exchanges took in s, the servers' CPU in us per s
// and node, and the bytes that one server wrote to its log, per s.
type burden struct {
	took     []float64
	cpu, log float64
	failed   int
	version  string
}

var errNoEtcd = errors.New("etcd is not installed (apt-get install etcd-server)")

// startEtcd starts etcd servers on loopback.
func startEtcd(path, dir string) (programs *cluster.Group, servers []server, addrs []string, err error) {
	ports, err := cluster.FreePorts(2 * etcdServers)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		programs, err = cluster.NewGroup(dir)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("bench: etcd: %w", err)
	}
	var peers []string
	for i := range etcdServers {
		peers = append(peers, fmt.Sprintf("e%d=http://%s", i, ports[etcdServers+i]))
	}
	for i := range etcdServers {
		name, client, peer := "e"+strconv.Itoa(i), "http://"+ports[i], "http://"+ports[etcdServers+i]
		data := filepath.Join(dir, name+".etcd")
		p, err := programs.Start(name, nil, path, "--name", name, "--data-dir", data,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-state", "new", "--log-level", "error")
		if err != nil {
			return nil, nil, nil, errors.Join(fmt.Errorf("bench: etcd: %w", err), programs.Close())
		}
		servers, addrs = append(servers, server{p, data}), append(addrs, client)
	}
	return programs, servers, addrs, nil
}

// etcdNode does by etcd what a node does by its exchange: each second it renews its
// lease, and in one transaction it writes its report under that lease and reads its cap.
type etcdNode struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	cap    string
	txn    func(ctx context.Context) (*clientv3.TxnResponse, error)
}

// newEtcdNode connects a node to one server.
func newEtcdNode(i int, addr string) (*etcdNode, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: etcdPatience, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("bench: etcd: %w", err)
	}
	name := fmt.Sprintf("n%05d", i)
	n := &etcdNode{client: c, lease: clientv3.LeaseID(i + 1), cap: "cap/" + name}
	report := string(reportBytes())
	n.txn = func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(n.cap), ">", 0)).
			Then(clientv3.OpPut("report/"+name, report, clientv3.WithLease(n.lease)), clientv3.OpGet(n.cap)).Commit()
	}
	return n, nil
}

// reportBytes is a heartbeat as our nodes send it.
func reportBytes() []byte {
	in, demand := int64(tightBudget), int64(170*units.Watt)
	stamp := wire.StampMessage(lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 3}, Seq: 12345})
	data, _ := proto.Marshal(&headroomv1.Heartbeat{ // these fields can always be encoded
		Number: 100, Highest: stamp, PowerUw: &in, DemandUw: &demand,
		Holding: &headroomv1.Holding{State: headroomv1.LeaseState_LEASE_STATE_HELD, Applied: stamp, CapUw: in, EffectiveUw: &in, FailSafeUw: int64(nodeLeast)},
	})
	return data
}

// begin takes the lease and writes the cap that the node will read.
func (n *etcdNode) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	_, err := etcdserverpb.NewLeaseClient(n.client.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: int64(n.lease), TTL: etcdTTL})
	if err == nil {
		_, err = n.client.Put(ctx, n.cap, "150000000")
	}
	return err
}

// run exchanges each second until ctx ends, beginning at wait; took is called with each
// exchange's time, or with its error.
func (n *etcdNode) run(ctx context.Context, wait time.Duration, took func(time.Duration, error)) {
	if !pause.For(ctx, wait) {
		return
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for ctx.Err() == nil {
		n.session(ctx, tick.C, took)
		_ = n.begin(ctx) // its lease may have run out; the next exchange fails if so
	}
}

// session exchanges over one stream of keepalives until an exchange fails: etcd ends
// the stream when it cannot renew in time.
func (n *etcdNode) session(ctx context.Context, tick <-chan time.Time, took func(time.Duration, error)) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(n.client.ActiveConnection()).LeaseKeepAlive(inner)
	for err == nil {
		began := time.Now()
		late := time.AfterFunc(etcdPatience, cancel)
		err = n.exchange(inner, stream)
		if late.Stop(); ctx.Err() == nil {
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
func (n *etcdNode) exchange(ctx context.Context, stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(n.lease)}); err != nil {
		return err
	}
	res, err := n.txn(ctx)
	if err != nil {
		return err
	}
	alive, err := stream.Recv()
	if err == nil && (!res.Succeeded || alive.GetTTL() <= 0) {
		err = fmt.Errorf("bench: etcd: %s: %w", n.cap, errNotSo)
	}
	return err
}

// bearEtcd puts the lease load of the nodes on etcd for a while.
func bearEtcd(ctx context.Context, r *run, dir string) (b *burden, err error) {
	b = &burden{}
	path, err := exec.LookPath("etcd")
	if err != nil {
		return b, errNoEtcd
	}
	programs, servers, addrs, err := startEtcd(path, dir)
	if err != nil {
		return b, err
	}
	defer r.end(programs.Close)
	nodes := make([]*etcdNode, r.cluster.nodes)
	for i := range nodes {
		if nodes[i], err = newEtcdNode(i, addrs[i%len(addrs)]); err != nil {
			return b, err
		}
		defer func() { _ = nodes[i].client.Close() }()
		if i < len(addrs) {
			err = await(ctx, 20*time.Second, "etcd at "+addrs[i], func() bool { return nodes[i].begin(ctx) == nil })
		} else {
			err = nodes[i].begin(ctx)
		}
		if err != nil {
			return b, fmt.Errorf("bench: etcd: lease of node %d: %w", i, err)
		}
	}
	if status, err := nodes[0].client.Status(ctx, addrs[0]); err == nil {
		b.version = "etcd " + status.Version
	}
	r.note("etcd: %d leases on %d servers for %v", len(nodes), len(addrs), r.cluster.duration)
	var mu sync.Mutex
	took := func(d time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			b.failed++
			return
		}
		b.took = append(b.took, d.Seconds())
	}
	inner, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for i, node := range nodes {
		running.Go(func() { node.run(inner, time.Duration(i)*beat/time.Duration(len(nodes)), took) })
	}
	if !pause.For(ctx, warmUpSpan) {
		return b, ctx.Err()
	}
	mu.Lock()
	b.took, b.failed = nil, 0
	mu.Unlock()
	b.cpu, b.log, err = watch(ctx, servers, len(nodes), r.cluster.duration)
	return b, err
}
