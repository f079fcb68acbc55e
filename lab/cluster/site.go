package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"headroom/lab/emulator"
	"headroom/units"
)

// Domain is the power domain of a Site, above those of its racks. It has the site's budget.
const Domain = "site/lab"

// Config describes a site.
type Config struct {
	// Dir is the site's folder, which is made, Bin the folder of Headroom's four programs.
	Dir, Bin string
	// Coordinators is their number: 1 or 3.
	Coordinators int
	// Nodes is how many emulated nodes there are, n1 and up. They own three quarters of the host's CPUs together.
	Nodes int
	// Racks is the number of racks that the nodes are divided among, the first ones in the first rack; 0 means 1.
	Racks int
	// Workers runs a scheduler's worker on each node, with so many slots; 0 for none.
	Workers int
	// Weight is how many times the host's other work the nodes' processes weigh when CPUs are short; 0 means 1.
	Weight int
}

// Site is a small cluster of Headroom. Its methods may be called from any goroutine.
type Site struct {
	config  Config
	group   *Group
	servers *Servers
	nodes   []string

	mu       sync.Mutex
	programs []*Program
}

// stopGrace is how long a program may take to stop: a node stops its powerd first.
const stopGrace = 10 * time.Second

// NewSite lays a site out; nothing is started yet but the guard, which Close ends.
func NewSite(config Config) (*Site, error) {
	s := &Site{config: config}
	for _, dir := range []*string{&s.config.Dir, &s.config.Bin} {
		var err error
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, fmt.Errorf("cluster: folder of the site: %w", err)
		}
	}
	err := CheckPrograms(s.config.Bin)
	if err != nil {
		return nil, err
	}
	if s.servers, err = NewServers(s.config.Dir, config.Coordinators, 1); err != nil {
		return nil, err
	}
	for i := range config.Nodes {
		s.nodes = append(s.nodes, "n"+strconv.Itoa(i+1))
	}
	if s.group, err = NewGroup(s.Path("logs")); err != nil {
		return nil, err
	}
	if err := s.servers.Configure(Domain, s.Full(), s.Racks()...); err != nil {
		return nil, errors.Join(err, s.group.Close())
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

// Rated is the most that one node draws, in whole watts, as powerd declares it.
func Rated() units.Power {
	return units.FromWatts(math.Ceil(emulator.DefaultSpec().Rated().Watts()))
}

// Full is the budget at which every node may run at full speed; the site starts with it.
func (s *Site) Full() units.Power { return Rated() * units.Power(s.config.Nodes) }

// Racks are the names of the power domains of the racks.
func (s *Site) Racks() (names []string) {
	for i := range max(1, s.config.Racks) {
		names = append(names, "rack/r"+strconv.Itoa(i+1))
	}
	return names
}

// rackOf is the rack of a node, which counts from 0.
func (s *Site) rackOf(node int) string {
	racks := s.Racks()
	return racks[node*len(racks)/len(s.nodes)]
}

// Addresses are the RPC addresses of all coordinators.
func (s *Site) Addresses() []string { return s.servers.Addresses() }

// Nodes are the names of the emulated nodes.
func (s *Site) Nodes() []string { return slices.Clone(s.nodes) }

// NodeDir returns the --dir of `powerlab node exec`.
func (s *Site) NodeDir() string { return s.Path("nodes") }

// Path is a path below the site's folder.
func (s *Site) Path(parts ...string) string {
	return filepath.Join(append([]string{s.config.Dir}, parts...)...)
}

// Start starts the coordinators and the nodes.
func (s *Site) Start() error {
	for _, m := range s.servers.Members {
		if err := s.StartCoordinator(m.ID); err != nil {
			return err
		}
	}
	more := []string{"--weight", strconv.Itoa(max(1, s.config.Weight)), "--no-worker"}
	if s.config.Workers > 0 {
		more = append(more[:2], "--scheduler", s.Scheduler(), "--slots", strconv.Itoa(s.config.Workers))
	}
	for i, name := range s.nodes {
		if err := s.start(name, s.servers.Node(s.config.Bin, name, s.rackOf(i), len(s.nodes), more...)...); err != nil {
			return err
		}
	}
	return nil
}

// StartCoordinator starts the coordinator of this name, c1 and up, again where it was killed.
func (s *Site) StartCoordinator(name string) error {
	return s.start(name, filepath.Join(s.config.Bin, "coordinator"), "run", "--config", s.servers.Config(Member{ID: name}))
}

// keeper is the name of the scheduler's process.
const keeper = "scheduler"

// StartScheduler starts the scheduler, again where it was killed; more is added to its
// configuration file, such as the section yarn, or classes instead of high and low.
func (s *Site) StartScheduler(more string) error {
	argv, err := s.servers.Scheduler(s.config.Bin, more)
	if err != nil {
		return err
	}
	return s.start(keeper, argv...)
}

// KillScheduler ends the scheduler as kill -9 does; what it has started goes on.
func (s *Site) KillScheduler() { s.Kill(keeper) }

// Kill ends the program of this name as kill -9 does, and returns its process id, 0 where none runs.
func (s *Site) Kill(name string) (pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.programs = slices.DeleteFunc(s.programs, func(p *Program) bool {
		if p.Name == name {
			pid = p.Pid()
			p.Kill()
		}
		return p.Name == name
	})
	return pid
}

// Scheduler is the scheduler's address, host:port.
func (s *Site) Scheduler() string { return s.servers.Spare[0] }

func (s *Site) start(name string, argv ...string) error {
	p, err := s.group.Start(name, nil, argv...)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.programs = append(s.programs, p)
	}
	return err
}

// Running is nil, or names the program that has ended without being stopped.
func (s *Site) Running() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.programs {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Close stops everything, the nodes while their coordinators still answer, and waits for it. The folder stays.
func (s *Site) Close() error {
	s.mu.Lock()
	programs := slices.Clone(s.programs)
	s.mu.Unlock()
	for _, nodes := range []bool{true, false} {
		var all sync.WaitGroup
		for _, p := range programs {
			if slices.Contains(s.nodes, p.Name) == nodes {
				all.Go(func() { p.Stop(stopGrace) })
			}
		}
		all.Wait()
	}
	return s.group.Close()
}
