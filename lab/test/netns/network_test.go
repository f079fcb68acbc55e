package netns

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// commandMost bounds one command of the machine's own: ip, nft, mount.
const commandMost = 20 * time.Second

// undoer undoes what a test has made to the machine, the last thing first, when the
// test ends or is killed: it is a shell that waits for the end of its input.
type undoer struct {
	t     *testing.T
	input io.WriteCloser
}

// newUndoer starts the shell. Its end is the last thing that the test waits for.
func newUndoer(t *testing.T) *undoer {
	t.Helper()
	const script = `undo=; while IFS= read -r line; do undo="$line
$undo"; done; eval "$undo"`
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("sh: %v", err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if err := cmd.Wait(); err != nil || said.Len() > 0 {
			t.Errorf("what the test made is not all undone: %v\n%s", err, said)
		}
	})
	return &undoer{t: t, input: input}
}

// later has a line of shell run at the end.
func (u *undoer) later(format string, args ...any) {
	u.t.Helper()
	if _, err := fmt.Fprintf(u.input, format+"\n", args...); err != nil {
		u.t.Fatalf("undo: %v", err)
	}
}

// run runs a command of the machine's own.
func run(t *testing.T, stdin string, argv ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// must is run of what has to succeed.
func must(t *testing.T, argv ...string) {
	t.Helper()
	testkit.Check(t, run(t, "", argv...))
}

// link is one direction between two hosts.
type link struct{ from, to string }

// network is a bridge in a namespace of its own, and one namespace for each host.
type network struct {
	t    *testing.T
	undo *undoer
}

// namespace is the name of a host's namespace: this process and the host.
func namespace(host string) string { return fmt.Sprintf("headroom-%d-%s", os.Getpid(), host) }

// inside is a command that becomes argv in a host's network namespace, and in
// nothing else of its own.
func inside(host string, argv ...string) []string {
	return append([]string{"nsenter", "--net=/run/netns/" + namespace(host), "--"}, argv...)
}

// bridgeHost is the namespace of the bridge.
const bridgeHost = "bridge"

// address is the address of the i-th host.
func address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// newNetwork joins the hosts; the i-th has address(i). Where the machine does not
// permit it the test is not run.
func newNetwork(t *testing.T, undo *undoer, hosts []string) *network {
	t.Helper()
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			testkit.NotRun(t, tool+" is missing; lab/test/netns/packages.txt lists the packages")
		}
	}
	if os.Geteuid() != 0 {
		testkit.NotRun(t, "network namespaces need root")
	}
	n := &network{t: t, undo: undo}
	if err := n.add(bridgeHost); err != nil {
		testkit.NotRun(t, err.Error())
	}
	if err := n.try("link", "add", "br0", "type", "bridge"); err != nil {
		testkit.NotRun(t, err.Error())
	}
	must(t, "ip", "-n", namespace(bridgeHost), "link", "set", "br0", "up")
	if err := n.set(nil); err != nil {
		testkit.NotRun(t, err.Error())
	}
	for i, host := range hosts {
		n.join(host, address(i))
	}
	return n
}

func (n *network) try(args ...string) error {
	return run(n.t, "", append([]string{"ip", "-n", namespace(bridgeHost)}, args...)...)
}

// add makes a namespace. At the end every process that still runs in it is ended with it: only
// what the test started there can be there.
func (n *network) add(host string) error {
	ns := namespace(host)
	if err := run(n.t, "", "ip", "netns", "add", ns); err != nil {
		return err
	}
	n.undo.later("for p in $(ip netns pids %s); do kill -9 $p; done; ip netns del %s", ns, ns)
	return run(n.t, "", "ip", "-n", ns, "link", "set", "lo", "up")
}

// join gives a host a namespace and a port of the bridge, which has its name.
func (n *network) join(host, addr string) {
	n.t.Helper()
	testkit.Check(n.t, n.add(host))
	ns, bridge := namespace(host), namespace(bridgeHost)
	must(n.t, "ip", "link", "add", "eth0", "netns", ns, "type", "veth", "peer", "name", host, "netns", bridge)
	must(n.t, "ip", "-n", ns, "addr", "add", addr+"/24", "dev", "eth0")
	must(n.t, "ip", "-n", ns, "link", "set", "eth0", "up")
	must(n.t, "ip", "-n", bridge, "link", "set", host, "master", "br0", "up")
}

// set makes cuts the only links that are cut, all at once.
func (n *network) set(cuts []link) error {
	n.t.Helper()
	var b strings.Builder
	b.WriteString("table bridge headroom\ndelete table bridge headroom\n")
	b.WriteString("table bridge headroom {\n chain forward {\n  type filter hook forward priority 0; policy accept;\n")
	for _, l := range cuts {
		fmt.Fprintf(&b, "  iifname %q oifname %q drop\n", l.from, l.to)
	}
	b.WriteString(" }\n}\n")
	return run(n.t, b.String(), inside(bridgeHost, "nft", "-f", "-")...)
}

// cut makes cuts the only links that are cut.
func (n *network) cut(cuts ...link) {
	n.t.Helper()
	testkit.Check(n.t, n.set(cuts))
}

// heal mends every link.
func (n *network) heal() { n.cut() }

// between are the links between any of the one side and any of the other, both ways.
func between(one, other []string) (cuts []link) {
	for _, a := range one {
		for _, b := range other {
			cuts = append(cuts, link{a, b}, link{b, a})
		}
	}
	return cuts
}
