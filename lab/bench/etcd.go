package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
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

// startEtcd starts etcd servers on loopback.
func startEtcd(programs *cluster.Group, dir string) (servers []server, addrs []string, err error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, nil, fmt.Errorf("apt-get install etcd-server: %w", err)
	}
	ports, err := cluster.FreePorts(2 * etcdServers)
	if err != nil {
		return nil, nil, err
	}
	var peers []string
	for i := range etcdServers {
		peers = append(peers, fmt.Sprintf("e%d=http://%s", i, ports[etcdServers+i]))
	}
	for i, p := range peers {
		name, peer, _ := strings.Cut(p, "=")
		client, data := "http://"+ports[i], filepath.Join(dir, name+".etcd")
		p, err := programs.Start(name, nil, path, "--name", name, "--data-dir", data,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-state", "new", "--log-level", "error")
		if err != nil {
			return nil, nil, err
		}
		servers, addrs = append(servers, server{p, data}), append(addrs, client)
	}
	return servers, addrs, nil
}

// etcdNode does by etcd what a node does by its exchange: each second it renews its
// lease, and in one transaction it writes its report under that lease and reads its cap.
type etcdNode struct {
	client *clientv3.Client
	leases etcdserverpb.LeaseClient
	lease  int64
	cap    string
	txn    func(ctx context.Context) (*clientv3.TxnResponse, error)
}

// newEtcdNode connects a node to one server.
func newEtcdNode(i int, addr string) (*etcdNode, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: etcdPatience, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("n%05d", i)
	n := &etcdNode{client: c, leases: etcdserverpb.NewLeaseClient(c.ActiveConnection()), lease: int64(i + 1), cap: "cap/" + name}
	in, demand := int64(tightBudget), int64(170*units.Watt)
	stamp := wire.StampMessage(lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: 3}, Seq: 12345})
	report, err := proto.Marshal(&headroomv1.Heartbeat{ // as our nodes send it
		Number: 100, Highest: stamp, PowerUw: &in, DemandUw: &demand,
		Holding: &headroomv1.Holding{State: headroomv1.LeaseState_LEASE_STATE_HELD, Applied: stamp, CapUw: in, EffectiveUw: &in, FailSafeUw: int64(nodeLeast)},
	})
	n.txn = func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(n.cap), ">", 0)).
			Then(clientv3.OpPut("report/"+name, string(report), clientv3.WithLease(clientv3.LeaseID(n.lease))), clientv3.OpGet(n.cap)).Commit()
	}
	return n, err
}

// begin takes the lease and writes the cap that the node will read.
func (n *etcdNode) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	_, err := n.leases.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: n.lease, TTL: etcdTTL})
	if err == nil {
		_, err = n.client.Put(ctx, n.cap, "150000000")
	}
	return err
}

// run exchanges each second until ctx ends, beginning at wait; took is called with each exchange's time, or with its
// error. etcd ends the stream of keepalives when it cannot renew in time: then another begins, with another lease if
// the old one has run out.
func (n *etcdNode) run(ctx context.Context, wait time.Duration, took func(time.Duration, error)) {
	inner, cancel := context.WithCancel(ctx)
	stream, err := n.leases.LeaseKeepAlive(inner)
	for tick := wait; pause.For(ctx, tick); {
		began := time.Now()
		late := time.AfterFunc(etcdPatience, cancel)
		if err == nil {
			err = n.exchange(inner, stream)
		}
		if late.Stop(); ctx.Err() == nil {
			took(time.Since(began), err)
		}
		if tick = max(0, beat-time.Since(began)); err != nil {
			cancel()
			_ = n.begin(ctx)                        // the next exchange fails if this does
			inner, cancel = context.WithCancel(ctx) //nolint:fatcontext // of ctx, not of the one before
			stream, err = n.leases.LeaseKeepAlive(inner)
		}
	}
	cancel()
}

// exchange sends both side by side, and is over when both have been answered.
func (n *etcdNode) exchange(ctx context.Context, stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: n.lease}); err != nil {
		return err
	}
	res, err := n.txn(ctx)
	if err != nil {
		return err
	}
	alive, err := stream.Recv()
	if err == nil && (!res.Succeeded || alive.GetTTL() <= 0) {
		err = errors.New("bench: etcd: the cap or the lease is gone")
	}
	return err
}

// etcd puts the lease load of the nodes on etcd for a while: the peer of the exchange, the CPU and the log.
func (t *trial) etcd(ctx context.Context) error {
	programs, err := cluster.NewGroup(t.dir)
	if err != nil {
		return err
	}
	defer t.end(programs.Close)
	servers, addrs, err := startEtcd(programs, t.dir)
	if err != nil {
		return err
	}
	nodes := make([]*etcdNode, t.nodes)
	for i := range nodes {
		if nodes[i], err = newEtcdNode(i, addrs[i%len(addrs)]); err != nil {
			return err
		}
		defer func() { _ = nodes[i].client.Close() }()
		if err := await(ctx, 20*time.Second, "etcd", func() bool { return nodes[i].begin(ctx) == nil }); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var took []float64
	failed := 0
	inner, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	for i, node := range nodes {
		running.Go(func() {
			node.run(inner, time.Duration(i)*beat/time.Duration(len(nodes)), func(d time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				} else {
					took = append(took, d.Seconds())
				}
			})
		})
	}
	cpu, log, err := t.watch(ctx, servers, func() {
		mu.Lock()
		defer mu.Unlock()
		took, failed = nil, 0
	})
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	for figure, values := range map[string][]float64{"exchange": took, "server-cpu": one(cpu), "server-log": one(log)} {
		of := t.took[figure]
		of.peer, of.note = values, fmt.Sprintf("%s; peer: etcd, %d of its exchanges failed", of.note, failed)
		t.took[figure] = of
	}
	return nil
}
