package netns

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/lab/emulator"
)

const (
	// patience bounds every wait: many times what it takes on a machine that is not busy.
	patience = time.Minute
	// glance is the pause between two looks.
	glance = 200 * time.Millisecond
	// answerMost bounds one command of an operator.
	answerMost = 30 * time.Second
	// stopGrace is how long a program may take to stop.
	stopGrace = 10 * time.Second
	// sharers is how many nodes a node believes to share the host with: it owns little
	// of it, so that a busy node leaves the servers room.
	sharers = 12
	// operator is the host that the commands are run on.
	operator = "op"
)

// shape is what cluster a scenario needs.
type shape struct {
	servers, nodes int
	lease          time.Duration
	// watts of the site's budget.
	budget float64
	// piped programs write to a pipe that must be read, not to a file.
	piped bool
	// disk, when set, is a folder made for the state of one server.
	disk func(c *cluster) (server, dir string)
}

// program is a process of the cluster.
type program struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// alive reports whether it has not ended yet.
func (p *program) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends a signal to this process alone.
func (p *program) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v to %s: %v", s, p.name, err)
	}
}

// kill is kill -9, and waits for the end.
func (p *program) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

// cluster is the servers, the nodes and the network between them.
type cluster struct {
	t       *testing.T
	dir     string
	shape   shape
	undo    *undoer
	net     *network
	servers []string
	nodes   []string
	state   map[string]string // state_dir by server
	running map[string]*program
	checker *checker
	readers []*reader // of the programs' output, where the shape has them piped
}

// newCluster starts the cluster and waits until every node holds a lease; from then
// on the checker looks.
func newCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	if testing.Short() {
		testkit.NotRun(t, "a cluster of real processes takes the whole machine")
	}
	c := &cluster{t: t, shape: s, state: map[string]string{}, running: map[string]*program{}}
	for i := range s.servers {
		c.servers = append(c.servers, "c"+strconv.Itoa(i+1))
	}
	for i := range s.nodes {
		c.nodes = append(c.nodes, fmt.Sprintf("n%02d", i+1))
	}
	c.dir = t.TempDir() // before the network: what is mounted in it is unmounted first
	c.undo = newUndoer(t)
	c.sweep()
	c.net = newNetwork(t, c.undo, c.hosts())
	testkit.Check(t, build())
	for _, id := range c.servers {
		c.state[id] = c.path(id)
	}
	if s.disk != nil {
		id, dir := s.disk(c)
		c.state[id] = dir
	}
	t.Cleanup(c.stop)
	c.configure()
	for _, id := range c.servers {
		c.start(id)
	}
	for _, name := range c.nodes {
		c.boot(name)
	}
	c.leased(c.nodes...)
	c.checker = newChecker(c)
	for _, name := range c.nodes {
		c.busy(name)
	}
	return c
}

func (c *cluster) hosts() []string {
	return slices.Concat(c.servers, c.nodes, []string{operator})
}

// at is a host's address.
func (c *cluster) at(host string) string { return address(slices.Index(c.hosts(), host)) }

func (c *cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

// tool is a built program.
func tool(name string) string { return filepath.Join(binaries(), name) }

// addresses are host:port of every server.
func (c *cluster) addresses(port string) (all []string) {
	for _, id := range c.servers {
		all = append(all, c.at(id)+":"+port)
	}
	return all
}

func quoted(all []string) string {
	var out []string
	for _, s := range all {
		out = append(out, strconv.Quote(s))
	}
	return strings.Join(out, ", ")
}

// configure makes certificates, the keys of gossip and brake and every configuration file.
func (c *cluster) configure() {
	c.t.Helper()
	must(c.t, tool("coordinator"), "tls", "ca", "create", "--dir", c.dir)
	who := []string{"admin/" + operator}
	for _, id := range c.servers {
		who = append(who, "server/"+id)
	}
	for _, name := range c.nodes {
		who = append(who, "node/"+name)
	}
	must(c.t, append([]string{tool("coordinator"), "tls", "cert", "create", "--dir", c.dir, "--ca-dir", c.dir}, who...)...)
	var key [32]byte
	_, _ = rand.Read(key[:])
	c.write("gossip.key", base64.StdEncoding.EncodeToString(key[:])+"\n")
	must(c.t, tool("coordinator"), "brake", "key", "create", "--private", c.path("brake.key"), "--public", c.path("brake.pub"))
	for _, id := range c.servers {
		c.write(id+".yaml", c.serverConfig(id))
	}
	for _, name := range c.nodes {
		testkit.Check(c.t, os.MkdirAll(c.path("nodes", name), 0o755))
		c.write(filepath.Join("nodes", name, "powerd.yaml"), c.nodeConfig(name))
	}
}

func (c *cluster) write(name, text string) {
	c.t.Helper()
	testkit.WriteFile(c.t, c.path(name), text)
}

// identity is the tls section of a host's configuration.
func (c *cluster) identity(host string) string {
	return fmt.Sprintf("tls: {mode: on, ca: %q, cert: %q, key: %q}\n", c.path("ca.crt"), c.path(host+".crt"), c.path(host+".key"))
}

func (c *cluster) gossip(host string) string {
	return fmt.Sprintf("gossip: {bind: %q, join: [%s], key_file: %q}\n", c.at(host)+":7402", quoted(c.addresses("7402")), c.path("gossip.key"))
}

func (c *cluster) serverConfig(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\nstate_dir: %q\nsocket: %q\nservers:\n", id, c.state[id], c.path(id+".sock"))
	for _, s := range c.servers {
		fmt.Fprintf(&b, "  - {id: %s, rpc: %q, raft: %q}\n", s, c.at(s)+":7400", c.at(s)+":7401")
	}
	b.WriteString(c.identity(id) + c.gossip(id))
	fmt.Fprintf(&b, "brake: {public_key_file: %q, private_key_file: %q}\n", c.path("brake.pub"), c.path("brake.key"))
	fmt.Fprintf(&b, "site:\n  - {name: site/lab, budget: %gW, unmanaged: 0W}\n  - {name: rack/r1, parent: site/lab, budget: %gW, unmanaged: 0W}\nlease: %v\n",
		c.shape.budget, 10*c.shape.budget, c.shape.lease)
	return b.String()
}

// nodeConfig is what powerlab would write for the node, with an address that others
// reach and the node's certificate.
func (c *cluster) nodeConfig(name string) string {
	spec, dir := emulator.DefaultSpec(), c.path("nodes", name)
	rated := math.Ceil(spec.Rated().Watts())
	return fmt.Sprintf("node: %s\ndomain: rack/r1\nroot: %q\nstate_dir: %q\nenforce: true\n", name, filepath.Join(dir, "root"), filepath.Join(dir, "state")) +
		fmt.Sprintf("power: {rated: %.0fW, floor: %.0fW, max: %.0fW, fail_safe: %gW, other: %gW, supply_efficiency: %.3f}\n",
			rated, math.Ceil(spec.Floor().Watts()), rated, failSafe(), spec.Other.Watts(), math.Floor(spec.WorstEfficiency()*1000)/1000) +
		c.identity(name) + c.gossip(name) + fmt.Sprintf("brake: {public_key_file: %q}\n", c.path("brake.pub"))
}

// failSafe is every node's fail-safe cap in watts.
func failSafe() float64 { return emulator.DefaultSpec().FailSafe.Watts() }

// launch starts a program on a host; its output is in NAME.log.
func (c *cluster) launch(name, host string, argv ...string) {
	c.t.Helper()
	out := testkit.Need(os.OpenFile(c.path(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644))(c.t)
	defer func() { _ = out.Close() }()
	argv = inside(host, argv...)
	p := &program{name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if c.shape.piped {
		pipe := c.read(p.name)
		p.cmd.Stdout, p.cmd.Stderr = pipe, pipe
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		c.t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended shows in its log
		close(p.done)
	}()
	c.running[name] = p
}

// start starts a server.
func (c *cluster) start(id string) {
	c.t.Helper()
	c.launch(id, id, tool("coordinator"), "run", "--config", c.path(id+".yaml"))
}

// boot starts an emulated node, which starts powerd.
func (c *cluster) boot(name string) {
	c.t.Helper()
	c.launch(name, name, tool("powerlab"), "node", name, "--dir", c.path("nodes"), "--nodes", strconv.Itoa(sharers), "--no-worker",
		"--bin", binaries(), "--restart-delay", "1s")
}

// sweep has the nodes' cgroups removed after everything else, where the nodes could
// not do it themselves.
func (c *cluster) sweep() {
	sum := sha256.Sum256([]byte(c.path("nodes")))
	group := "/sys/fs/cgroup/*/headroom-" + hex.EncodeToString(sum[:6])
	c.undo.later("for again in 1 2 3 4 5; do for d in %s/* %s; do [ ! -d $d ] || rmdir $d || sleep 0.2; done; done 2>/dev/null", group, group)
}

// busy keeps the CPUs of a node busy, so that it draws what its cap leaves it.
func (c *cluster) busy(name string) {
	c.t.Helper()
	c.launch(name+"-load", name, tool("powerlab"), "node", "exec", name, "--dir", c.path("nodes"), "--", "sh", "-c", "while :; do :; done")
}

// stop ends every program, the nodes while there may be servers to receive it.
func (c *cluster) stop() {
	for _, suffix := range []string{"-load", "", ""} {
		for name, p := range c.running {
			if isServer := slices.Contains(c.servers, name); strings.HasSuffix(name, suffix) && (suffix != "" || !isServer) {
				c.end(p)
			}
		}
	}
	for _, p := range c.running {
		c.end(p)
	}
	if c.t.Failed() {
		c.logs()
	}
}

// end sends a program SIGTERM, and kills it when it does not end.
func (c *cluster) end(p *program) {
	if !p.alive() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		select {
		case <-p.done:
		case <-time.After(stopGrace):
			c.t.Errorf("%s does not end, killed or not", p.name)
		}
	}
}

// logs shows the end of every log.
func (c *cluster) logs() {
	files, _ := filepath.Glob(c.path("*.log"))
	more, _ := filepath.Glob(c.path("nodes", "*", "powerd.log"))
	for _, file := range append(files, more...) {
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		name, _ := filepath.Rel(c.dir, file)
		c.t.Logf("%s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// refusal is a command that did not end with 0.
type refusal struct {
	code int
	text string
}

// Error returns the command's exit code and output.
func (r *refusal) Error() string { return fmt.Sprintf("exit %d: %s", r.code, r.text) }

// answer is the frame of every JSON answer.
type answer[T any] struct {
	Revision uint64  `json:"revision"`
	Server   string  `json:"server"`
	Epoch    *uint64 `json:"epoch"`
	Items    []T     `json:"items"`
}

// ask has an operator query the servers over the network, with a certificate.
func ask[T any](c *cluster, args ...string) (answer[T], *refusal) {
	c.t.Helper()
	return command[T](c, append([]string{
		"--patience", "2s", "--addr", strings.Join(c.addresses("7400"), ","), "--ca", c.path("ca.crt"),
		"--cert", c.path(operator + ".crt"), "--key", c.path(operator + ".key"),
	}, args...))
}

// askAt queries one server on its own socket, as a user logged in there would.
func askAt[T any](c *cluster, id string, args ...string) (answer[T], *refusal) {
	c.t.Helper()
	return command[T](c, append([]string{"--patience", "300ms", "--socket", c.path(id + ".sock")}, args...))
}

func command[T any](c *cluster, args []string) (a answer[T], r *refusal) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerMost)
	defer cancel()
	argv := inside(operator, append([]string{tool("coordinator"), "-o", "json"}, args...)...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, said := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Run(); err != nil {
		_ = json.Unmarshal(out.Bytes(), &a) // a check that finds failures prints them and ends with 1
		return a, &refusal{code: cmd.ProcessState.ExitCode(), text: strings.TrimSpace(said.String())}
	}
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		c.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return a, nil
}

// until looks until f is true.
func (c *cluster) until(what string, f func() bool) {
	c.t.Helper()
	if !c.within(patience, f) {
		c.t.Fatalf("after %v still not: %s", patience, what)
	}
}

// within looks until f is true, and answers false when that takes longer than most.
func (c *cluster) within(most time.Duration, f func() bool) bool {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for late := time.After(most); ; {
		if f() {
			return true
		}
		select {
		case <-tick.C:
		case <-late:
			return f()
		}
	}
}

// pass lets time go by: a fault has to last.
func (c *cluster) pass(d time.Duration) { c.within(d, func() bool { return false }) }

// node is a row of the leader's table.
type node struct {
	Name, State string
	CapW        float64 `json:"cap_w"`
	CeilingW    float64 `json:"ceiling_w"`
	ChargeW     float64 `json:"charge_w"`
	Lease       struct {
		RemainingS *float64 `json:"remaining_s"`
	} `json:"lease"`
}

// table is the leader's table of nodes, by name; nil while no server answers.
func (c *cluster) table() map[string]node {
	c.t.Helper()
	a, refused := ask[node](c, "node", "list")
	if refused != nil {
		return nil
	}
	out := map[string]node{}
	for _, n := range a.Items {
		out[n.Name] = n
	}
	return out
}

// leased waits until the leader has granted these nodes a lease and they hold it.
func (c *cluster) leased(names ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("a lease on %v", names), func() bool {
		table := c.table()
		return !slices.ContainsFunc(names, func(name string) bool {
			n, known := table[name]
			h, err := c.held(name)
			return !known || n.State != "ok" || n.Lease.RemainingS == nil || err != nil || h.State != "held"
		})
	})
}

// leader waits for a leader that proves that it leads, and is its id and epoch.
func (c *cluster) leader() (id string, epoch uint64) {
	c.t.Helper()
	c.until("a leader", func() bool {
		a, refused := ask[struct{}](c, "status")
		if refused == nil && a.Epoch != nil {
			id, epoch = a.Server, *a.Epoch
		}
		return id != ""
	})
	return id, epoch
}

// leads hands the lead to a server and is its id and epoch.
func (c *cluster) leads(id string) (leader string, epoch uint64) {
	c.t.Helper()
	c.until(id+" to lead", func() bool {
		if leader, epoch = c.leader(); leader == id {
			return true
		}
		_, _ = ask[struct{}](c, "member", "transfer", id, "--yes")
		return false
	})
	c.leased(c.nodes...)
	return leader, epoch
}

// others are the servers but these.
func (c *cluster) others(but ...string) []string {
	return slices.DeleteFunc(slices.Clone(c.servers), func(id string) bool { return slices.Contains(but, id) })
}

// change is a row of the history of budgets.
type change struct {
	Revision uint64  `json:"revision"`
	FromW    float64 `json:"from_w"`
	ToW      float64 `json:"to_w"`
	Reason   string  `json:"reason"`
	At       string  `json:"at"`
	Actor    string  `json:"actor"`
}

// history waits for the changes of the site's budget, the oldest first.
func (c *cluster) history() []change {
	c.t.Helper()
	var a answer[change]
	c.until("a history of budgets", func() (ok bool) {
		var refused *refusal
		a, refused = ask[change](c, "budget", "history", "site/lab")
		return refused == nil
	})
	return a.Items
}

// reasoned counts the changes of a history with a reason.
func reasoned(all []change, reason string) (count int) {
	for _, x := range all {
		if x.Reason == reason {
			count++
		}
	}
	return count
}

// budget has the operator change the site's budget and waits for the nodes. The
// checker holds the nodes to the higher of the two until all have read back.
func (c *cluster) budget(watts float64, reason string) {
	c.t.Helper()
	c.checker.allow(max(watts, c.checker.allowed()))
	c.until("a budget of "+strconv.FormatFloat(watts, 'g', -1, 64)+" W", func() bool {
		to := fmt.Sprintf("%gW", watts)
		_, refused := ask[struct{}](c, "budget", "set", to, "--confirm", to, "--reason", reason, "--request-id", reason)
		return refused == nil
	})
	c.until(fmt.Sprintf("caps of together %g W", watts), func() bool {
		s, err := c.checker.look()
		return err == nil && s.held <= watts+rounding
	})
	c.checker.allow(watts)
}

// led is when a server began to lead in which epoch, by its own log.
var led = regexp.MustCompile(`(?m)^time=(\S+) .*msg=leading epoch=(\S+)$`)

// terms are the epochs that a server led in, and when it began.
func (c *cluster) terms(id string) map[string]time.Time {
	c.t.Helper()
	data, err := os.ReadFile(c.path(id + ".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]time.Time{}
	for _, m := range led.FindAllStringSubmatch(string(data), -1) {
		if out[m[2]], err = time.Parse(time.RFC3339, m[1]); err != nil {
			c.t.Fatal(err)
		}
	}
	return out
}

// ledAfter is how long after a moment a server began to lead in an epoch.
func (c *cluster) ledAfter(id string, epoch uint64, began time.Time) time.Duration {
	c.t.Helper()
	at, ok := c.terms(id)[strconv.FormatUint(epoch, 10)]
	if !ok {
		c.t.Errorf("the log of %s does not say that it led in epoch %d", id, epoch)
	}
	return at.Sub(began).Round(100 * time.Millisecond)
}

// oneLeader checks by the servers' logs that no epoch had two leaders.
func (c *cluster) oneLeader() {
	c.t.Helper()
	by := map[string]string{}
	for _, id := range c.servers {
		for epoch := range c.terms(id) {
			if other := by[epoch]; other != "" {
				c.t.Errorf("%s and %s both led in epoch %s", other, id, epoch)
			}
			by[epoch] = id
		}
	}
	if len(by) == 0 {
		c.t.Error("no server's log says that it led")
	}
}
