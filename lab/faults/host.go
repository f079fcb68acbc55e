package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// commandMost bounds one command of the machine's own.
	commandMost = 20 * time.Second
	bridge      = "bridge"
	operator    = "op"
)

// link is one direction between two hosts.
type link struct{ from, to string }

// network is a bridge and one network namespace for each host.
type network struct {
	mu   sync.Mutex
	cuts map[int][]link // by the fault that made them
}

// inside is a command that becomes argv in a host's network namespace.
func inside(host string, argv ...string) []string {
	return append([]string{"nsenter", "--net=/run/netns/" + host, "--"}, argv...)
}

// run runs a command of the machine's own.
func run(ctx context.Context, stdin string, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("faults: %s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// newNetwork joins the hosts; the i-th has address(i).
func newNetwork(ctx context.Context, hosts []string) (*network, error) {
	n := &network{cuts: map[int][]link{}}
	steps := []string{
		"mount -t tmpfs faults /run", "mkdir /run/netns", "ip netns add " + bridge,
		"ip -n bridge link set lo up", "ip -n bridge link add br0 type bridge", "ip -n bridge link set br0 up",
	}
	for i, h := range hosts {
		steps = append(steps, "ip netns add "+h, "ip -n "+h+" link set lo up",
			"ip link add eth0 netns "+h+" type veth peer name "+h+" netns "+bridge,
			"ip -n "+h+" addr add "+address(i)+"/24 dev eth0", "ip -n "+h+" link set eth0 up",
			"ip -n bridge link set "+h+" master br0 up")
	}
	for _, step := range steps {
		if err := run(ctx, "", strings.Fields(step)...); err != nil {
			return nil, err
		}
	}
	return n, n.set(ctx, 0, nil)
}

// address is the address of the i-th host.
func address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// set makes cuts the links that the fault of this number cuts; none mends them.
func (n *network) set(ctx context.Context, fault int, cuts []link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cuts, fault)
	if len(cuts) > 0 {
		n.cuts[fault] = cuts
	}
	var b strings.Builder
	b.WriteString("table bridge headroom\ndelete table bridge headroom\n")
	b.WriteString("table bridge headroom {\n chain forward {\n  type filter hook forward priority 0; policy accept;\n")
	for _, cuts := range n.cuts {
		for _, l := range cuts {
			fmt.Fprintf(&b, "  iifname %q oifname %q drop\n", l.from, l.to)
		}
	}
	b.WriteString(" }\n}\n")
	return run(ctx, b.String(), inside(bridge, "nft", "-f", "-")...)
}

// between are the links between any of the one side and any of the other, both ways.
func between(one, other []string) []link {
	return slices.Concat(oneWay(one, other), oneWay(other, one))
}

// oneWay are the links from any of the one side to any of the other.
func oneWay(from, to []string) (cuts []link) {
	for _, a := range from {
		for _, b := range to {
			if a != b {
				cuts = append(cuts, link{a, b})
			}
		}
	}
	return cuts
}

// program is a process of the cluster.
type program struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// launch starts a program on a host; its output is in NAME.log.
func launch(dir, name, host string, argv ...string) (*program, error) {
	out, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("faults: start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	argv = inside(host, argv...)
	p := &program{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})} //nolint:noctx // it ends with the namespace; whoever starts it names it
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("faults: start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended shows in its log
		close(p.done)
	}()
	return p, nil
}

// signal sends a signal; one to a program that has ended has no effect.
func (p *program) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// end sends the program SIGTERM, unless it has no grace, and kills it when it has not ended after that.
func (p *program) end(grace time.Duration) {
	if grace > 0 {
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
}

// pause waits, and reports false when ctx ends meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return ctx.Err() == nil
}
