package faults

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The cluster: what an operator would write into the configuration files. The node's
// figures are those of the emulated machine's own powerd.yaml.
const (
	leaseS = 4.0
	// ratedW and failSafeW are of each node.
	ratedW    = 241.0
	failSafeW = 95.0
	budgetW   = 560.0
	// sharers is how many nodes a node believes to share the host with, so that its
	// load leaves the servers room.
	sharers = 12
	// bootMost bounds the wait for the first leases.
	bootMost = 90 * time.Second
	// answerMost bounds one command of an operator.
	answerMost = 15 * time.Second
)

// cluster is the programs and where they run.
type cluster struct {
	dir, bin       string
	net            *network
	servers, nodes []string

	mu      sync.Mutex
	running map[string]*program
}

func newCluster(ctx context.Context, dir, bin string) (*cluster, error) {
	c := &cluster{dir: dir, bin: bin, running: map[string]*program{}, servers: []string{"c1", "c2", "c3"}, nodes: []string{"n01", "n02", "n03"}}
	var err error
	if c.net, err = newNetwork(ctx, c.hosts()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	if err = c.configure(ctx); err == nil {
		err = c.startAll()
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootMost)
	defer cancel()
	return c, c.leased(ctx)
}

func (c *cluster) hosts() []string { return slices.Concat(c.servers, c.nodes, []string{operator}) }

func (c *cluster) at(host, port string) string {
	return address(slices.Index(c.hosts(), host)) + ":" + port
}

func (c *cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

func (c *cluster) tool(name string) string { return filepath.Join(c.bin, name) }

// addresses are those of all servers, in any order.
func (c *cluster) addresses(port string) (all []string) {
	for _, id := range c.servers {
		all = append(all, c.at(id, port))
	}
	return all
}

// configure makes certificates, keys and configuration files.
func (c *cluster) configure(ctx context.Context) error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	files := map[string]string{"gossip.key": base64.StdEncoding.EncodeToString(key[:]) + "\n"}
	certificates := []string{"tls", "cert", "create", "--dir", c.dir, "--ca-dir", c.dir, "admin/" + operator}
	for _, id := range c.servers {
		certificates = append(certificates, "server/"+id)
		files[id+".yaml"] = c.serverConfig(id)
	}
	for _, name := range c.nodes {
		certificates = append(certificates, "node/"+name)
		files[filepath.Join("nodes", name, "powerd.yaml")] = c.nodeConfig(name)
	}
	for _, args := range [][]string{
		{"tls", "ca", "create", "--dir", c.dir},
		certificates,
		{"brake", "key", "--private", c.path("brake.key"), "--public", c.path("brake.pub")},
	} {
		if err := run(ctx, "", append([]string{c.tool("coordinator")}, args...)...); err != nil {
			return err
		}
	}
	for name, text := range files {
		err := os.MkdirAll(filepath.Dir(c.path(name)), 0o700)
		if err == nil {
			err = os.WriteFile(c.path(name), []byte(text), 0o600)
		}
		if err != nil {
			return fmt.Errorf("faults: %w", err)
		}
	}
	return nil
}

// shared are the sections that servers and nodes have in common.
func (c *cluster) shared(host string) string {
	return fmt.Sprintf("tls: {mode: on, ca: %q, cert: %q, key: %q}\n", c.path("ca.crt"), c.path(host+".crt"), c.path(host+".key")) +
		fmt.Sprintf("gossip: {bind: %q, join: [%s], key_file: %q}\n", c.at(host, "7402"), `"`+strings.Join(c.addresses("7402"), `", "`)+`"`, c.path("gossip.key"))
}

func (c *cluster) serverConfig(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nstate_dir: %q\nsocket: %q\nservers:\n", id, c.path(id), c.path(id+".sock"))
	for _, s := range c.servers {
		fmt.Fprintf(&b, "  - {id: %s, rpc: %q, raft: %q}\n", s, c.at(s, "7400"), c.at(s, "7401"))
	}
	b.WriteString(c.shared(id))
	fmt.Fprintf(&b, "brake: {public_key_file: %q, private_key_file: %q}\n", c.path("brake.pub"), c.path("brake.key"))
	fmt.Fprintf(&b, "site:\n  - {name: site/lab, budget: %gW, unmanaged: 0W}\n  - {name: rack/r1, parent: site/lab, budget: %gW, unmanaged: 0W}\nlease: %gs\n",
		budgetW, 10*budgetW, leaseS)
	return b.String()
}

func (c *cluster) nodeConfig(name string) string {
	dir := c.path("nodes", name)
	return fmt.Sprintf("node: %s\ndomain: rack/r1\nroot: %q\nstate_dir: %q\nenforce: true\n", name, filepath.Join(dir, "root"), filepath.Join(dir, "state")) +
		fmt.Sprintf("power: {rated: %gW, floor: 70W, max: %gW, fail_safe: %gW, other: 22W, supply_efficiency: 0.914}\n", ratedW, ratedW, failSafeW) +
		fmt.Sprintf("brake: {public_key_file: %q}\n", c.path("brake.pub")) + c.shared(name)
}

// start starts a program under its name, in the place of one that has ended.
func (c *cluster) start(name string) error {
	argv, host := []string{c.tool("coordinator"), "run", "--config", c.path(name + ".yaml")}, name
	lab, at := c.tool("powerlab"), c.path("nodes")
	if node, isLoad := strings.CutSuffix(name, "-load"); isLoad {
		host = node
		argv = []string{lab, "node", "exec", node, "--dir", at, "--", "sh", "-c", "while :; do :; done"}
	} else if slices.Contains(c.nodes, name) {
		// Throttled by signals: that leaves no cgroup behind when all is killed.
		argv = []string{lab, "node", name, "--dir", at, "--nodes", strconv.Itoa(sharers), "--no-worker", "--bin", c.bin, "--restart-delay", "1s", "--throttle", "signals"}
	}
	p, err := launch(c.dir, name, host, argv...)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = p
	return nil
}

func (c *cluster) program(name string) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[name]
}

func (c *cluster) startAll() (err error) {
	for _, name := range slices.Concat(c.servers, c.nodes) {
		err = errors.Join(err, c.start(name))
	}
	return err
}

// busy gives each node a load, so that it draws what its cap leaves it.
func (c *cluster) busy() (err error) {
	for _, name := range c.nodes {
		err = errors.Join(err, c.start(name+"-load"))
	}
	return err
}

// leased waits until every node has a lease.
func (c *cluster) leased(ctx context.Context) error {
	type row struct {
		State string
		Lease struct {
			RemainingS *float64 `json:"remaining_s"`
		}
	}
	for {
		var rows []row
		_, code, text := c.ask(ctx, &rows, "node", "list")
		holding := 0
		for _, r := range rows {
			if r.State == "ok" && r.Lease.RemainingS != nil {
				holding++
			}
		}
		if code == 0 && holding == len(c.nodes) {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("faults: %d of %d nodes have a lease after %v: %s: %w", holding, len(c.nodes), bootMost, text, ctx.Err())
		}
	}
}

// ask runs one command of an operator with a certificate, over the network. It returns
// the revision of the answer and the exit code, -1 when the command itself was killed.
func (c *cluster) ask(ctx context.Context, items any, args ...string) (revision uint64, code int, said string) {
	ctx, cancel := context.WithTimeout(ctx, answerMost)
	defer cancel()
	argv := inside(operator, append([]string{
		c.tool("coordinator"), "-o", "json", "--patience", "2s", "--addr", strings.Join(c.addresses("7400"), ","),
		"--ca", c.path("ca.crt"), "--cert", c.path(operator + ".crt"), "--key", c.path(operator + ".key"),
	}, args...)...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, errs := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			return 0, -1, err.Error()
		}
		return 0, cmd.ProcessState.ExitCode(), strings.TrimSpace(errs.String())
	}
	frame := struct {
		Revision uint64 `json:"revision"`
		Items    any    `json:"items"`
	}{Items: items}
	if err := json.Unmarshal(out.Bytes(), &frame); err != nil {
		return 0, -1, err.Error()
	}
	return frame.Revision, 0, ""
}

// stop ends every program, loads first.
func (c *cluster) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range [][]string{c.nodes, c.servers} {
		var all sync.WaitGroup
		for _, name := range group {
			if p := c.running[name]; p != nil {
				all.Go(func() { p.end(5 * time.Second) })
			}
		}
		all.Wait()
	}
}
