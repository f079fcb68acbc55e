package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"headroom/gossip/brake"
	"headroom/units"
)

// Member is one coordinator: its id and its addresses.
type Member struct{ ID, RPC, Raft, Gossip string }

// Servers are the coordinators of one group, without certificates: where each listens, and
// its configuration. They are not started here.
type Servers struct {
	Members []Member

	dir   string
	spare []string // addresses without a listener, different from theirs
}

// NewServers finds addresses for n coordinators whose files lie in the folder dir, and spare ones.
func NewServers(dir string, n, spare int) (*Servers, error) {
	ports, err := FreePorts(3*n + spare)
	if err != nil {
		return nil, err
	}
	s := &Servers{dir: dir, spare: ports[3*n:]}
	for i := range n {
		s.Members = append(s.Members, Member{"c" + strconv.Itoa(i+1), ports[3*i], ports[3*i+1], ports[3*i+2]})
	}
	return s, nil
}

// FreePorts returns n loopback addresses without a listener, for TCP and UDP both. They are
// all held until the last is found, so that they differ.
func FreePorts(n int) (addrs []string, err error) {
	var lc net.ListenConfig
	ctx := context.Background()
	for range 10 * n {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("cluster: find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		u, err := lc.ListenPacket(ctx, "udp", l.Addr().String())
		if err != nil {
			continue
		}
		defer func() { _ = u.Close() }()
		if addrs = append(addrs, l.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, errors.New("cluster: no port is free for both TCP and UDP")
}

// Addresses are the RPC addresses of all of them.
func (s *Servers) Addresses() (all []string) {
	for _, m := range s.Members {
		all = append(all, m.RPC)
	}
	return all
}

// Path is a path below the folder of the files.
func (s *Servers) Path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// GossipKey is the file of the gossip's key.
func (s *Servers) GossipKey() string { return s.Path("gossip.key") }

// brakeKey is the file of the public key that a brake is believed by; the coordinators have the private one beside it.
func (s *Servers) brakeKey() string { return s.Path("brake.pub") }

// Config is the configuration file of a member.
func (s *Servers) Config(m Member) string { return s.Path(m.ID + ".yaml") }

// NodeDir is the folder of the emulated nodes, the --dir of `powerlab node exec`.
func (s *Servers) NodeDir() string { return s.Path("nodes") }

// Node is the command line of one of so many emulated nodes in a power domain, with more added.
func (s *Servers) Node(bin, name, domain string, nodes int, more ...string) []string {
	argv := []string{
		filepath.Join(bin, "powerlab"), "node", name, "--dir", s.NodeDir(), "--nodes", strconv.Itoa(nodes), "--bin", bin, "--domain", domain,
		"--key-file", s.GossipKey(), "--brake-key-file", s.brakeKey(),
	}
	for _, m := range s.Members {
		argv = append(argv, "--join", m.Gossip)
	}
	return append(argv, more...)
}

// Configure writes the keys and the configuration files: a site with racks, all with
// this budget, and all power of the racks given to nodes.
func (s *Servers) Configure(site string, budget units.Power, racks ...string) error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	err := errors.Join(
		os.WriteFile(s.GossipKey(), []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600),
		brake.WriteKey(s.Path("brake.key"), s.brakeKey()),
	)
	var all strings.Builder
	all.WriteString("tls: {mode: off}\nlease: 10s\nservers:\n")
	for _, m := range s.Members {
		fmt.Fprintf(&all, "  - {id: %s, rpc: %q, raft: %q}\n", m.ID, m.RPC, m.Raft)
	}
	fmt.Fprintf(&all, "brake: {public_key_file: %q, private_key_file: %q}\n", s.brakeKey(), s.Path("brake.key"))
	fmt.Fprintf(&all, "site:\n  - {name: %s, budget: %gW, unmanaged: 0W}\n", site, budget.Watts())
	for _, rack := range racks {
		fmt.Fprintf(&all, "  - {name: %s, parent: %s, budget: %gW, unmanaged: 0W}\n", rack, site, budget.Watts())
	}
	for _, m := range s.Members {
		own := fmt.Sprintf("id: %s\nstate_dir: %q\ngossip: {bind: %q, join: [%q], key_file: %q}\n", m.ID, s.Path(m.ID), m.Gossip, s.Members[0].Gossip, s.GossipKey())
		err = errors.Join(err, os.WriteFile(s.Config(m), []byte(own+all.String()), 0o600))
	}
	if err != nil {
		return fmt.Errorf("cluster: write configuration: %w", err)
	}
	return nil
}
