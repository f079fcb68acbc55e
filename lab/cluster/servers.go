package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
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
	// Spare are further addresses without a listener, different from theirs.
	Spare []string

	dir string
}

// NewServers finds addresses for n coordinators whose files lie in the folder dir, and spare ones.
func NewServers(dir string, n, spare int) (*Servers, error) {
	ports, err := FreePorts(3*n + spare)
	if err != nil {
		return nil, err
	}
	s := &Servers{dir: dir, Spare: ports[3*n:]}
	for i := range n {
		s.Members = append(s.Members, Member{"c" + strconv.Itoa(i+1), ports[3*i], ports[3*i+1], ports[3*i+2]})
	}
	return s, nil
}

// Addresses are the RPC addresses of all of them.
func (s *Servers) Addresses() []string {
	var out []string
	for _, m := range s.Members {
		out = append(out, m.RPC)
	}
	return out
}

// GossipKey is the file of the gossip's key, BrakeKey that of the key that a brake is believed by.
func (s *Servers) GossipKey() string { return filepath.Join(s.dir, "gossip.key") }

// BrakeKey is the public one; the coordinators have the private one beside it.
func (s *Servers) BrakeKey() string { return filepath.Join(s.dir, "brake.pub") }

// Config is the configuration file of a member.
func (s *Servers) Config(m Member) string { return filepath.Join(s.dir, m.ID+".yaml") }

// CheckPrograms returns an error unless Headroom's four programs are in bin.
func CheckPrograms(bin string) error {
	for _, name := range []string{"coordinator", "scheduler", "powerd", "powerlab"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("cluster: program %s not found in %s: build it with make build", name, bin)
		}
	}
	return nil
}

// NodeDir is the folder of the emulated nodes' own.
func (s *Servers) NodeDir() string { return filepath.Join(s.dir, "nodes") }

// Node is the command line of one of so many emulated nodes in a power domain, with more added.
func (s *Servers) Node(bin, name, domain string, nodes int, more ...string) []string {
	argv := []string{
		filepath.Join(bin, "powerlab"), "node", name, "--dir", s.NodeDir(), "--nodes", strconv.Itoa(nodes), "--bin", bin, "--domain", domain,
		"--key-file", s.GossipKey(), "--brake-key-file", s.BrakeKey(),
	}
	for _, m := range s.Members {
		argv = append(argv, "--join", m.Gossip)
	}
	return append(argv, more...)
}

// Scheduler writes the configuration of a scheduler that listens on a spare address, with more
// added, and returns its command line.
func (s *Servers) Scheduler(bin, more string) ([]string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "dev: true\nlisten: %q\ndir: %q\ncoordinators:\n", s.Spare[0], filepath.Join(s.dir, "scheduler"))
	for _, addr := range s.Addresses() {
		fmt.Fprintf(&b, "  - %q\n", addr)
	}
	if !strings.HasPrefix(more, "classes:") && !strings.Contains(more, "\nclasses:") {
		b.WriteString("classes: [high, low]\n")
	}
	path := filepath.Join(s.dir, "scheduler.yaml")
	if err := os.WriteFile(path, []byte(b.String()+more), 0o644); err != nil {
		return nil, fmt.Errorf("cluster: write configuration: %w", err)
	}
	return []string{filepath.Join(bin, "scheduler"), "run", "--config", path}, nil
}

// Configure writes the keys and the configuration files: a site with racks, all with
// this budget, and all power of the racks given to nodes.
func (s *Servers) Configure(site string, budget units.Power, racks ...string) error {
	var key [32]byte
	_, _ = rand.Read(key[:])
	private := filepath.Join(s.dir, "brake.key")
	errs := []error{
		os.WriteFile(s.GossipKey(), []byte(base64.StdEncoding.EncodeToString(key[:])+"\n"), 0o600),
		brake.WriteKey(private, s.BrakeKey()),
	}
	for _, m := range s.Members {
		var b strings.Builder
		fmt.Fprintf(&b, "id: %s\nstate_dir: %q\ntls: {mode: off}\nservers:\n", m.ID, filepath.Join(s.dir, m.ID))
		for _, o := range s.Members {
			fmt.Fprintf(&b, "  - {id: %s, rpc: %q, raft: %q}\n", o.ID, o.RPC, o.Raft)
		}
		fmt.Fprintf(&b, "gossip: {bind: %q, join: [%q], key_file: %q}\n", m.Gossip, s.Members[0].Gossip, s.GossipKey())
		fmt.Fprintf(&b, "brake: {public_key_file: %q, private_key_file: %q}\n", s.BrakeKey(), private)
		fmt.Fprintf(&b, "site:\n  - {name: %s, budget: %gW, unmanaged: 0W}\n", site, budget.Watts())
		for _, rack := range racks {
			fmt.Fprintf(&b, "  - {name: %s, parent: %s, budget: %gW, unmanaged: 0W}\n", rack, site, budget.Watts())
		}
		b.WriteString("lease: 10s\n")
		errs = append(errs, os.WriteFile(s.Config(m), []byte(b.String()), 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cluster: write configuration: %w", err)
	}
	return nil
}
